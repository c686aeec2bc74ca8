"""From tables to a published model: read, judge, compare, choose, fit, export, prove, publish, register.

Nothing is published, and no alias moves, before every check has passed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from features.pair import Encoder
from interfere.data.quality import MIN_ICC, table_quality
from interfere.data.tables import Table, read_table, table_digest
from interfere.errors import UnfitError
from interfere.protocols import PairEncoder
from training.dataset import METRIC, Dataset, Pair, Rows, build_dataset, hold_out, require_enough
from training.evaluation.cross_validation import Evaluation, answers_of, champion_of, evaluate_models, markdown
from training.evaluation.gate import Verdict
from training.evaluation.gate_rows import read_rival, verdict_on
from training.evaluation.scores import Interval, score, speed
from training.models.catalogue import MODELS
from training.models.feasibility import fit_feasibility, tried
from training.models.intervals import HIGH, LOW, calibrated
from training.models.model import FittedMatrixModel, FittedModel, ModelSettings
from training.models.residual_prior import errors_of, fit_prior, prior_bytes
from training.publishing import registry
from training.publishing.export import export_matrix, export_pair, run_matrix, run_pairs, session_of
from training.publishing.model_card import Trained, model_card
from training.publishing.model_folder import Publication, job_rows, publish, require_replaceable
from training.publishing.run_record import SplitScore, record
from training.publishing.tracking import prepare, tracked

HELD_OUT = "held_out"
EXAMPLE_ROWS = 2  # of the input example that the registered model carries
MATRIX_STAND_IN = "gp"  # fills matrices for a champion that does not factorise over jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult:
    """What a training made."""

    champion: str
    scores: tuple[SplitScore, ...]  # splits `pair`, `job`, and `held_out` when pairs were held out
    folder: Path  # the published model
    version: str  # of that folder
    run_id: str
    registered: registry.Registered
    verdict: Verdict
    rows: int  # ordered pairs fitted
    worst_parity: float  # log slowdown

    @property
    def table(self) -> str:
        """All scores as Markdown."""
        return markdown(self.scores)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Tables as read, with what the card says of them."""

    tables: tuple[Table, ...]
    icc: tuple[float, ...]
    digests: tuple[str, ...]


def train(
    tables: Sequence[Path],
    work: Path,
    *,
    seed: int = 0,
    name: str = "default",
    publish_to: Path | None = None,
    held_out: frozenset[Pair] = frozenset(),
    tracking: str | None = None,
    models: Mapping[str, ModelSettings] = MODELS,
    notes: Mapping[str, str] | None = None,
    report: Callable[[str], None] | None = None,
) -> TrainingResult:
    """Train all models on the tables, publish and register the best.

    `held_out`: unordered pairs that no model is fitted or chosen on, scored apart. The folder goes to `publish_to`,
    else to `models/challenger` of the workspace; the first model of a registry that passes the gate also becomes its
    champion. `tracking` is the address of an MLflow server; without one the workspace keeps the runs.
    `notes` are further texts for the run, by file name. Raises TableError
    for a broken table, UnfitError for data or places that will not do, UnavailableError for a server that does not
    answer, ModelError for a failed export.
    """
    say = report or (lambda _: None)
    encoder = Encoder()
    source = read_source(tables)
    fitted_on, unseen = hold_out(build_dataset(source.tables, encoder), held_out)
    require_enough(fitted_on)
    folder = publish_to or registry.challenger_folder(work)
    require_replaceable(folder)
    prepare(work, tracking)
    say(f"{len(fitted_on)} ordered pairs of {len(fitted_on.workloads)} workloads, {len(unseen)} held out")
    evaluations = evaluate_models(fitted_on, tuple(models.values()), seed=seed, report=say)
    champion = champion_of(evaluations)
    say(f"champion: {champion}; fitting every model on all rows")
    final = {model: settings.fit(fitted_on, seed) for model, settings in models.items()}
    scores = (
        *((e.split, e.model, e.scores) for e in evaluations),
        *_held_out_scores(final, unseen, _pair_residuals(fitted_on, evaluations)),
    )

    say("exporting and checking against the fitted models")
    publication = publication_of(
        champion, final, fitted_on, source, encoder, evaluations=evaluations, scores=scores, seed=seed
    )

    say("recording the run")
    with tracked(work, name, tracking) as run:
        with registry.present(run) as now:
            rival = None if now is None else read_rival(now.number, now.model, now.folder, encoder)
            verdict = verdict_on(final[champion], rival, fitted_on, unseen, evaluations, seed=seed)
        for table, path, digest in zip(source.tables, tables, source.digests, strict=True):
            run.data(table.name, digest, str(path), table.ok_pairs)
        record(run, fitted_on, evaluations, scores, publication, verdict, models, final, seed=seed)
        for file, text in (notes or {}).items():
            run.text(file, text)
        version = publish(folder, publication, fitted_on, source.tables, encoder)
        run.folder(registry.PUBLISHED, folder)
        first = fitted_on.rows.take(np.arange(EXAMPLE_ROWS))
        registered = registry.register(
            run,
            publication.pair_graph,
            {field: getattr(first, field) for field in Rows.__dataclass_fields__},
            model=champion,
            version=version,
            verdict=verdict,
            judged_against=None if now is None else now.number,
        )
    if registered.champion and folder != registry.champion_folder(work):
        registry.copy_folder(folder, registry.champion_folder(work))
    return TrainingResult(
        champion=champion,
        scores=scores,
        folder=folder,
        version=version,
        run_id=run.id,
        registered=registered,
        verdict=verdict,
        rows=len(fitted_on),
        worst_parity=publication.worst_parity,
    )


def read_source(paths: Sequence[Path]) -> Source:
    """All tables; refuses one whose blocks do not agree with each other."""
    tables = tuple(read_table(path) for path in paths)
    agreement = tuple(table_quality(table).icc for table in tables)
    for table, icc in zip(tables, agreement, strict=True):
        if icc < MIN_ICC:  # NaN, from single blocks, passes: nothing is known against it
            raise UnfitError(
                f"table {table.name}: its passes disagree, a model would learn noise",
                value=f"ICC {icc:.2f} between blocks, at least {MIN_ICC} is needed",
                remedy="measure again on a quiet machine with more passes: interfere profile campaign",
            )
    return Source(tables=tables, icc=agreement, digests=tuple(table_digest(path) for path in paths))


def _pair_residuals(dataset: Dataset, evaluations: Sequence[Evaluation]) -> dict[str, NDArray[np.float64]]:
    return {e.model: e.residual(dataset) for e in evaluations if e.split == "pair"}


def _held_out_scores(
    final: Mapping[str, FittedModel], unseen: Dataset, pair_residuals: Mapping[str, NDArray[np.float64]]
) -> tuple[SplitScore, ...]:
    """Newest row of each held-out pair; coverage by the interval that the model's `pair` residuals give."""
    newest = unseen.latest()
    if len(newest) == 0:
        return ()
    index = np.arange(len(newest))
    found = []
    for name, model in final.items():
        answers = answers_of(newest, index, model.predict(newest.rows), np.zeros_like(index), apart=False)
        low, high = np.quantile(pair_residuals[name], [LOW, HIGH])
        guess = answers.predicted_log
        interval = Interval(low=guess + low, high=guess + high, subject=answers.victim)
        found.append((HELD_OUT, name, score(answers, interval)))
    return tuple(found)


def publication_of(
    champion: str,
    final: Mapping[str, FittedModel],
    dataset: Dataset,
    source: Source,
    encoder: PairEncoder,
    *,
    evaluations: Sequence[Evaluation],
    scores: Sequence[SplitScore],
    seed: int,
) -> Publication:
    """Export the champion, whichever model it is, prove the graphs equal, and write its card. Raises ModelError."""
    matrix_of = final[champion] if hasattr(final[champion], "to_matrix_onnx") else final[MATRIX_STAND_IN]
    pair = export_pair(final[champion], dataset, encoder, seed=seed)
    matrix = export_matrix(cast(FittedMatrixModel, matrix_of), dataset, encoder, seed=seed)
    errors = {e.split: errors_of(dataset, e, seed) for e in evaluations if e.model == champion}
    trained_on = tuple(
        Trained(table=table.name, rows=int((dataset.table == t).sum()), sha256=digest, icc=icc)
        for t, (table, digest, icc) in enumerate(zip(source.tables, source.digests, source.icc, strict=True))
    )
    distance = _matrix_distance(dataset, source.tables, encoder, pair.content, matrix.content)
    worst = max(pair.worst, matrix.worst)
    card = model_card(
        dataset,
        champion=champion,
        matrix=matrix_of.name,
        matrix_mae=distance,
        scores=scores,
        trained_on=trained_on,
        seed=seed,
        worst_parity=worst,
    )
    return Publication(
        model=champion,
        matrix_model=matrix_of.name,
        matrix_mae_vs_pair=distance,
        worst_parity=worst,
        pair_graph=pair.content,
        matrix_graph=matrix.content,
        card=card,
        intervals=calibrated(dataset, [e for e in evaluations if e.model == champion]),
        feasibility=fit_feasibility(tried(source.tables, encoder, metric=METRIC)),
        space=getattr(final[champion], "space", None),
        scores=scores,
        trained_on=trained_on,
        residual_prior=prior_bytes(fit_prior(dataset, errors["job"], errors["pair"])),
    )


def _matrix_distance(
    dataset: Dataset, tables: Sequence[Table], encoder: PairEncoder, pair: bytes, matrix: bytes
) -> float:
    """Mean |y_matrix - y_pair| over all ordered pairs of known workloads, mean over domains."""
    ids = np.arange(1, len(dataset.workloads) + 1)
    i, j = (side.ravel() for side in np.indices((len(ids), len(ids))))
    apart = []
    for domain in range(len(dataset.domains)):
        jobs = job_rows(dataset, domain, tables, encoder)
        rows = Rows(
            pairs=encoder.encode_pairs(jobs[i], jobs[j]),
            victim=ids[i],
            neighbour=ids[j],
            domain=np.full(len(i), domain + 1),
        )
        ahead, _ = run_matrix(session_of(matrix), jobs, ids, jobs, ids, domain + 1)
        apart.append(np.abs(speed(ahead.ravel()) - speed(run_pairs(session_of(pair), rows))).mean())
    return float(np.mean(apart))
