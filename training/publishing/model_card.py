"""Writes the model card: what a published model is, what it was trained on, how well it predicts, and its limits."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from interfere.predict.graphs.matrix_limit import MatrixLimit
from interfere.training.dataset import Dataset
from interfere.training.evaluation.candidates import GATE, REQUEST
from interfere.training.evaluation.score_table import LEGEND, markdown_table
from interfere.training.evaluation.scores import Scores
from interfere.training.groups.evaluation import DomainComposition

DESCRIPTIONS = {
    "mean": "one number for all pairs",
    "additive": "a sum of the victim's and the neighbour's effect on speed, ridge regression",
    "gbdt": "gradient-boosted trees (LightGBM) on pair features",
    "gp": "a Gaussian process that factorises over jobs",
    "ensemble": "a Gaussian process and gradient-boosted trees (LightGBM), weighted by how new the jobs are",
    "mlp": "a two-tower network, one shared encoder of jobs, average of its members",
}

SELECTIONS = {
    GATE: "The champion has the lowest mean of its MAE over `pair`, `job` and `family`; the ensemble is preferred "
    "within 5 %, else the simpler of two equals.",
    REQUEST: "This model was requested by name (`interfere train --champion`), whatever the others score.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTable:
    """One table that a model was trained on."""

    table: str
    rows: int  # that were fitted, without held-out ones
    sha256: str
    icc: float  # agreement of two measurement blocks; NaN for a single block


def model_card(
    dataset: Dataset,
    *,
    champion: str,
    selected_by: str,
    matrix_limit: MatrixLimit | None,
    scores: Sequence[tuple[str, str, Scores]],
    trained_on: Sequence[TrainingTable],
    seed: int,
    worst_parity: float,
    warnings: Sequence[str] = (),
    notice: str = "",
    compositions: Sequence[DomainComposition] = (),
    beliefs: Sequence[str] = (),
) -> str:
    """The card as Markdown, without dates and paths: equal data and seed give an equal card.

    `notice`: what the licence of the training data asks to be told. `beliefs`: a line on each table with few pairs.
    """
    domains = ", ".join(f"{d.device_type} / {d.mode} / {d.metric}" for d in dataset.domains)
    trial_note = (
        "\n**One CPU core, for trying out.** Two processes shared one core in time slices. These figures say nothing "
        "about a GPU.\n"
        if {d.device_type for d in dataset.domains} == {"cpu-core"}
        else ""
    )
    tables = "\n".join(
        f"- `{table.table}`: {table.rows} ordered pairs, "
        f"ICC of two blocks {'unknown' if math.isnan(table.icc) else f'{table.icc:.3f}'}, sha256 `{table.sha256}`"
        for table in trained_on
    )
    matrix_line = (
        "It factorises over jobs: matrices of any size are answered by the same model."
        if matrix_limit is None
        else f"It predicts pair by pair: a matrix or a decision may hold {matrix_limit.pairs:,} distinct ordered "
        f"pairs, which take about {matrix_limit.seconds:g} s of one core; larger ones are refused."
    )
    warning_lines = "".join(f"- **{warning}**\n" for warning in warnings)
    description = _description(champion)
    return f"""# Slowdown predictor: {champion}

Predicts `slowdown[i, j]`: the metric of job i beside job j ÷ its metric alone. The model is {description}.
{matrix_line}
{trial_note}
## Learned from
{tables}

Domains (device type / sharing mode / metric): {domains}. Workloads: {", ".join(dataset.workloads)}.
Features: encoder `{dataset.fingerprint}`, {len(dataset.job_columns)} columns a job, {len(dataset.pair_columns)} a pair.

## Scores on rows never fitted
`pair`: both jobs known, their pair not. `job`: one of the two jobs never seen. `family`: nor any other of its model
family, a third of the families hidden at a time. `held_out`: pairs the caller kept away from fitting and choosing.
Speed = 1 / slowdown, clipped to [0.05, 1.6].
{SELECTIONS[selected_by]}

{markdown_table(scores)}

{LEGEND}.
{_groups_section(compositions)}{_beliefs_section(beliefs)}
## Limits
{warning_lines}- Another device type or sharing mode is refused unless extrapolation is asked for: levels do not
  transfer.
- Intervals are quantiles of held-out residuals by evidence (0, 1 to 3, 4 and more measured partners of the less known
  job) and domain, wider for novel jobs. They hold on average over jobs, not for each one.
- A pair is not predicted where the largest errors are expected, a large slowdown beside a job unlike the above:
  measure it first.
- Exported graphs equal their models within {worst_parity:.0e} in log slowdown, also on split thresholds (gate 1e-5).
- Seed {seed}; the same tables and seed give the same model.
{f"{chr(10)}## Notices{chr(10)}{notice.strip()}{chr(10)}" if notice.strip() else ""}"""


def _beliefs_section(lines: Sequence[str]) -> str:
    """What predicts the pairs of tables of which few were measured; empty without such tables."""
    if not lines:
        return ""
    listed = "\n".join(f"- {line}" for line in lines)
    return f"""
## Tables with few pairs
Their pairs are predicted by the model above together with a belief: a Gaussian process over the measured pairs, which
starts from what a model predicted before any was measured. Weights are inverse to mean squared errors out of fold.

{listed}
"""


def _groups_section(compositions: Sequence[DomainComposition]) -> str:
    """How well groups of three and more are predicted; empty without measured ones."""
    if not compositions:
        return ""
    rows = "\n".join(
        f"| {each.device_type} / {each.mode} | {score.size or 'all'} | {score.cases} | {score.mae:.4f} | "
        f"{score.mae_known_pairs:.4f} | {score.mae_sum:.4f} | {score.mae_product:.4f} | {score.coverage:.3f} |"
        for each in compositions
        for score in each.scores
    )
    fitted = "\n".join(f"- {_composition_text(each)}" for each in compositions)
    return f"""
## Groups of three and more
Composed from the slowdowns of their pairs. Per domain:
{fitted}

MAE of speed and coverage of the 90 % interval, groups with a job never seen; `known pairs`: the same groups, every pair
of them measured.

| domain | jobs | cases | MAE | known pairs | sum | product | coverage |
|---|---|---|---|---|---|---|---|
{rows}
"""


def _composition_text(domain: DomainComposition) -> str:
    """The parameters of one domain, where they come from, and how well they do beside those of before."""
    source = (
        f"of table `{domain.table}`, whose pairs the model has not learned: fitted, and scored below, on that table's "
        "own pairs, while intervals stay as they were, since the model's pairs were measured elsewhere"
        if domain.table
        else "of the tables above"
    )
    return (
        f"{domain.device_type} / {domain.mode}: growth {domain.composition.growth:g}, saturation "
        f"{domain.composition.saturation:g}; {domain.cases} victims in groups {source}; {domain.choice.text()}"
    )


def _description(model: str) -> str:
    """What a model is, in a few words; of a model that is not in the catalogue, only that."""
    return DESCRIPTIONS.get(model, "a model that does not ship with interfere")
