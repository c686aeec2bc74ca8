"""The model card: what a published model is, what it learned from, how well it does, and where not to trust it."""

from collections.abc import Sequence
from dataclasses import dataclass

from training.dataset import Dataset
from training.evaluation.cross_validation import LEGEND, markdown
from training.evaluation.scores import Scores

WHAT = {
    "mean": "one number for all pairs",
    "additive": "a sum of the victim's and the neighbour's effect on speed, ridge regression",
    "gbdt": "gradient-boosted trees (LightGBM) on pair features",
    "gp": "a Gaussian process that factorises over jobs",
    "ensemble": "a Gaussian process and gradient-boosted trees (LightGBM), weighted by how new the jobs are",
    "mlp": "a two-tower network, one shared encoder of jobs, average of its members",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """One table a model learned from."""

    table: str
    rows: int  # used, without the held-out ones
    sha256: str
    icc: float  # agreement of two blocks; NaN with single blocks


def model_card(
    dataset: Dataset,
    *,
    champion: str,
    matrix: str,
    matrix_mae: float,
    scores: Sequence[tuple[str, str, Scores]],
    trained_on: Sequence[Trained],
    seed: int,
    worst_parity: float,
) -> str:
    """Markdown, free of dates and paths: equal data and seed give an equal card."""
    domains = ", ".join(f"{d.device_type} / {d.mode} / {d.metric}" for d in dataset.domains)
    small = (
        "\n**One CPU core, for trying out.** Two processes shared one core in time slices. These figures say nothing "
        "about a GPU.\n"
        if {d.device_type for d in dataset.domains} == {"cpu-core"}
        else ""
    )
    tables = "\n".join(
        f"- `{t.table}`: {t.rows} ordered pairs, ICC of two blocks {'unknown' if t.icc != t.icc else f'{t.icc:.3f}'}, "
        f"sha256 `{t.sha256}`"
        for t in trained_on
    )
    matrix_line = (
        "Large matrices are answered by the same model."
        if matrix == champion
        else f"Large matrices are answered by `{matrix}` ({WHAT[matrix]}); over all known workloads its speeds differ "
        f"from the champion's by {matrix_mae:.4f} on average."
    )
    return f"""# Slowdown predictor: {champion}

Predicts `slowdown[i, j]`: the metric of job i beside job j ÷ its metric alone. The champion is {WHAT[champion]}.
{matrix_line}
{small}
## Learned from
{tables}

Domains (device type / sharing mode / metric): {domains}. Workloads: {", ".join(dataset.workloads)}.
Features: encoder `{dataset.fingerprint}`, {len(dataset.job_names)} columns a job, {len(dataset.pair_names)} a pair.

## Scores on rows never fitted
`pair`: both jobs known, their pair not. `job`: one of the two jobs never seen. `held_out`: pairs the caller kept
away from fitting and choosing. Speed = 1 / slowdown, clipped to [0.05, 1.6]. The champion has the lowest mean of its
MAE over `pair` and `job`; the ensemble is preferred within 5 %, else the simpler of two equals.

{markdown(scores)}

{LEGEND}.

## Limits
- Another device type or sharing mode is refused unless extrapolation is asked for: levels do not transfer.
- Intervals are quantiles of held-out residuals by evidence (0, 1 to 3, 4 and more measured partners of the less known
  job) and domain, wider for novel jobs. They hold on average over jobs, not for each one.
- A pair with a job too unlike all of the above is not predicted: measure it first.
- Exported graphs equal their models within {worst_parity:.0e} in log slowdown, also on split thresholds (gate 1e-5).
- Seed {seed}; the same tables and seed give the same model.
"""
