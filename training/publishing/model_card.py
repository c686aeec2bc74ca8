"""The model card as a document: what a published model is, its training data, how well it predicts, and its limits."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from interfere.devices import CPU_CORE
from interfere.predict.manifest import MatrixLimit
from interfere.reports.document import Code, Column, Document, Items, Part, Section, Sentence, Table, Tone, with_code
from interfere.reports.numbers import COUNT, fixed
from interfere.training.dataset import Dataset
from interfere.training.evaluation.candidates import GATE, REQUEST, Candidates
from interfere.training.evaluation.scores import Scores, card_tables
from interfere.training.groups.evaluation import DomainComposition
from interfere.training.publishing.goldens import stated_range
from interfere.training.tuning import SUFFIX

SCORES = "Scores on rows never fitted"  # title of a section
DESCRIPTIONS = {
    "mean": "one number for all pairs",
    "additive": "a sum of the victim's and the neighbour's effect on speed, ridge regression",
    "gbdt": "gradient-boosted trees (LightGBM) on pair features",
    "gp": "a Gaussian process over pairs of jobs",
    "ensemble": "a Gaussian process and gradient-boosted trees (LightGBM), weighted by how far the jobs are from known "
    "ones",
    "mlp": "a two-tower network, one shared encoder of jobs, average of its members",
}

SELECTIONS = {
    GATE: "The champion has the lowest mean of its MAE over `pair`, `job` and `family`. The ensemble is preferred "
    "where its mean is within 5 % of the lowest, and of two equal models the simpler one.",
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
    candidates: Candidates,
    *,
    matrix_limit: MatrixLimit | None,
    trained_on: Sequence[TrainingTable],
    worst_parity: float,
    warnings: Sequence[str] = (),
    notice: str = "",
    compositions: Sequence[DomainComposition] = (),
    beliefs: Sequence[str] = (),
) -> Document:
    """Return the model card. It has no dates and paths, so that equal data and seed give an equal card.

    `notice`: the text that the licence of the training data requires. `beliefs`: a line on each table with few pairs.
    """
    dataset, champion = candidates.dataset, candidates.champion
    cautions = [Sentence("", lead=warning, tone=Tone.BAD) for warning in warnings]
    stated = stated_range(dataset)
    exactness = (
        f"Exported graphs equal their models within {worst_parity:.0e} in log slowdown, also on split thresholds "
        "(gate 1e-5).",
        f"Golden requests: the folder holds requests with the answers of the fitted model. A server asks them before "
        f"it serves the model, and refuses it where an answer differs by more than 1e-5 in log slowdown or a median is "
        f"outside {stated.least:.2g} to {stated.most:.2g}.",
        f"Seed {candidates.seed}; the same tables and seed give the same model.",
    )
    return Document(
        f"Slowdown predictor: {champion}",
        (
            Sentence(
                with_code(
                    "Predicts `slowdown[i, j]`: the metric of job i beside job j ÷ its metric alone. "
                    f"The model is {_description(champion)}."
                )
            ),
            Sentence(_matrix_text(matrix_limit)),
            *_trial_note(dataset),
            Section("Learned from", _sources(dataset, trained_on)),
            Section(SCORES, _scores(candidates)),
            *_groups_section(compositions),
            *_beliefs_section(beliefs),
            Section("Intended use", (Items(INTENDED_USES),)),
            Section("Out of scope", (Items(OUT_OF_SCOPE),)),
            Section("Limits", (*cautions, Items((*LIMITS, *exactness)))),
            Section("Licence and citation", (Sentence(LICENCE), Sentence(CITATION, lead="Cite as:"))),
            *((Section("Notices", (Sentence(notice.strip()),)),) if notice.strip() else ()),
        ),
    )


def card_head(card: Document) -> Document:
    """Return what a card says before its scores."""
    before = takewhile(lambda part: not (isinstance(part, Section) and part.title == SCORES), card.parts)
    return replace(card, parts=tuple(before))


def _description(model: str) -> str:
    tuned = DESCRIPTIONS.get(model.removesuffix(SUFFIX))
    if tuned is not None and model.endswith(SUFFIX):
        return f"{tuned}, with settings that were searched; no score below is of rows that chose the settings"
    return tuned or "a model that does not ship with interfere"


LIMITS = (
    "Another device type or sharing mode is refused unless extrapolation is asked for: slowdowns differ between them.",
    "Intervals are quantiles of held-out residuals by evidence (0, 1 to 3, 4 and more measured partners of the less "
    "known job) and domain, wider for novel jobs. They hold on average over jobs, not for each one.",
    "A pair is not predicted where the largest errors are expected: a large slowdown beside a job that is unlike the "
    "workloads above. Measure such a pair first.",
)


SCORES_LEGEND = (
    "MAE ± its standard error over victims, and P90: mean and 90th percentile of the absolute error of speed. MAPE: of "
    "slowdown. Regret: loss of speed by the partner that the predictions choose. Coverage and width of the intervals "
    "are over all rows; worst 10 %: coverage of the worst tenth of jobs; tenth job: coverage that nine of ten jobs "
    "surpass. Of jobs never seen, own: their own slowdown; others': the slowdown of others beside them. "
    "`manifest.json` holds all scores."
)
INTENDED_USES = (
    "Predicting who slows whom, and by how much, to decide which jobs share a device; with the interfere server, which "
    "corrects the predictions by what the scheduler measures.",
    "Ranking partners for a job. Measure a few pairs where the decision matters.",
)
OUT_OF_SCOPE = (
    "Promises about a single job: intervals hold on average. A cap on slowdown is kept by measurements, not by this "
    "model alone.",
    "Latencies of services, memory that does not fit, and energy, unless a section above says otherwise.",
    "Billing, or judging the people who submit jobs.",
)
LICENCE = "Licence: Apache-2.0. The tables that it learned from keep their own licences."
CITATION = "The interfere contributors, this model's version and the tables that it learned from (above)."


def _matrix_text(limit: MatrixLimit | None) -> str:
    """Return a sentence on how large a matrix the model answers."""
    if limit is None:
        return "It encodes every job once, so it answers matrices of any size."
    return (
        f"It predicts pair by pair: a matrix or a decision may hold {limit.pairs:,} distinct ordered pairs, which take "
        f"about {limit.seconds:g} s of one core; larger ones are refused."
    )


def _trial_note(dataset: Dataset) -> list[Sentence]:
    """Return a note that a model of CPU cores is meant for trying out the program."""
    if {d.device_type for d in dataset.domains} != {CPU_CORE.name}:
        return []
    text = "Two processes shared one core in time slices. These figures say nothing about a GPU."
    return [Sentence(text, lead="One CPU core, for trying out.")]


def _sources(dataset: Dataset, trained_on: Sequence[TrainingTable]) -> tuple[Part, ...]:
    """Return the tables, the domains and workloads, and the encoder."""
    domains = ", ".join(f"{d.device_type} / {d.mode} / {d.metric}" for d in dataset.domains)
    tables = tuple(
        (
            Code(table.table),
            f": {table.rows} ordered pairs, ICC of two blocks "
            f"{'unknown' if math.isnan(table.icc) else f'{table.icc:.3f}'}, sha256 ",
            Code(table.sha256),
        )
        for table in trained_on
    )
    columns = f", {len(dataset.job_columns)} columns a job, {len(dataset.pair_columns)} a pair."
    return (
        Items(tables),
        Sentence(
            f"Domains (device type / sharing mode / metric): {domains}. Workloads: {', '.join(dataset.workloads)}."
        ),
        Sentence(("Features: encoder ", Code(dataset.fingerprint), columns)),
    )


def _scores(candidates: Candidates) -> tuple[Part, ...]:
    splits = (
        "`pair`: both jobs known, their pair not. `job`: one of the two jobs never seen. `family`: nor any other job "
        "of its model family; a third of the families is hidden at a time. `held_out`: pairs that the caller kept from "
        f"fitting and selection. Speed = 1 / slowdown, clipped to [0.05, 1.6]. {SELECTIONS[candidates.selected_by]}"
    )
    return (Sentence(with_code(splits)), *score_sections(candidates.scores), Sentence(with_code(SCORES_LEGEND)))


def score_sections(scores: Sequence[tuple[str, str, Scores]]) -> list[Section]:
    """Return a section for each table of scores."""
    return [Section(table.title, (table,)) for table in card_tables(scores)]


def _beliefs_section(lines: Sequence[str]) -> list[Section]:
    """Return the section about tables with few measured pairs and the beliefs that predict them; empty without such
    tables."""
    text = (
        "Their pairs are predicted by the model above together with a belief: a Gaussian process over the measured "
        "pairs, which starts from what a model predicted before any was measured. Weights are inverse to mean squared "
        "errors out of fold."
    )
    return [Section("Tables with few pairs", (Sentence(text), Items(tuple(lines))))] if lines else []


def _groups_section(compositions: Sequence[DomainComposition]) -> list[Section]:
    """Return the section on the accuracy for groups of three and more; empty without measured groups."""
    if not compositions:
        return []
    error = fixed(4)
    several = len({(each.device_type, each.mode) for each in compositions}) > 1
    table = Table(
        title="Groups of three and more",
        columns=(
            Column("domain: jobs" if several else "jobs"),
            Column("cases", COUNT),
            *(Column(name, error) for name in ("MAE", "known pairs", "sum", "product")),
            Column("coverage", fixed(3)),
        ),
        rows=tuple(
            (
                f"{f'{each.device_type} / {each.mode}: ' if several else ''}{score.size or 'all'}",
                score.cases,
                *(score.mae, score.mae_known_pairs, score.mae_sum, score.mae_product),
                score.coverage,
            )
            for each in compositions
            for score in each.scores
        ),
    )
    legend = (
        "MAE of speed and coverage of the 90 % interval, groups with a job never seen; `known pairs`: the same groups, "
        "every pair of them measured."
    )
    fitted = Items(tuple(with_code(_composition_text(each)) for each in compositions))
    composed = Sentence("Composed from the slowdowns of their pairs. Per domain:")
    return [Section("Groups of three and more", (composed, fitted, Sentence(with_code(legend)), table))]


def _composition_text(domain: DomainComposition) -> str:
    """Return the composition parameters of one domain in words, with their source and their accuracy beside the earlier
    ones."""
    source = (
        f"of table `{domain.table}`, whose pairs the model has not learned. Both the fit and the scores below use that "
        "table's own pairs; intervals are kept, because the model's pairs were measured elsewhere"
        if domain.table
        else "of the tables above"
    )
    return (
        f"{domain.device_type} / {domain.mode}: growth {domain.composition.growth:g}, saturation "
        f"{domain.composition.saturation:g}; {domain.cases} victims in groups {source}. Composition: "
        f"{domain.choice.text()}"
    )
