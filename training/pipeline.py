"""The training pipeline, from tables to a published model: read, train, export, judge, log, publish, register.

Nothing is published, and no alias moves, before every check has passed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from interfere.errors import ModelError, UnfitError
from interfere.features.pair import FeatureEncoder
from interfere.predict.groups import GroupComposition
from interfere.predict.manifest import read_manifest
from interfere.protocols import PairEncoder
from interfere.records.checks import METRICS
from interfere.study.engine import Engine, Runner
from interfere.time_left import TimeLeft
from interfere.training.beliefs import BeliefComparison, read_table_beliefs, with_beliefs
from interfere.training.campaigns import training_rows
from interfere.training.dataset import METRIC, Dataset, Pair, SourceTables, read_source_tables
from interfere.training.evaluation.candidates import (
    TABLE_TASK,
    SplitScore,
    TableContribution,
    require_model,
    table_contributions,
    train_candidates,
    training_validations,
)
from interfere.training.evaluation.champion import gate_verdict, read_champion
from interfere.training.evaluation.cross_validation import FOLDS_FOLDER, predict_fold
from interfere.training.evaluation.gate import Verdict
from interfere.training.groups.evaluation import DomainComposition, published_compositions, read_group_tables
from interfere.training.groups.fit import DomainKey
from interfere.training.models.catalogue import MODELS
from interfere.training.models.protocols import ModelSettings
from interfere.training.publishing import model_registry
from interfere.training.publishing.model_registry import ModelVersion
from interfere.training.publishing.publication import (
    Publication,
    build_publication,
    publish,
    require_replaceable,
)
from interfere.training.publishing.tracking import (
    mlflow_connection,
    prepare_workspace,
    require_access,
    tracked_run,
)
from interfere.training.publishing.training_record import log_contributions, log_training, training_name
from interfere.training.tuning import FoundSettings, tuned_models

MIN_DOMAIN_ROWS = 20  # ordered pairs of a device type and mode: as many calibrate a new device type
AFTER_FITS = ("groups", "export", "record")  # tasks that follow the fits of models
FAST_MODEL = "gbdt"  # tells which table helps: as good as the champion for that, and fitted in a second
LATENCY_METRICS = tuple(metric for metric in METRICS if metric != METRIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult:
    """The result of a training: its models, their scores, and where the champion was published."""

    champion: str  # name of the published model
    selected_by: str  # one of `interfere.training.evaluation.candidates`
    scores: tuple[SplitScore, ...]  # splits `pair`, `job`, `family`, and `held_out` where pairs were held out
    folder: Path  # the published model
    version: str  # of that folder
    run_id: str
    registered: ModelVersion
    verdict: Verdict
    rows: int  # ordered pairs fitted
    worst_parity: float  # log slowdown
    warnings: tuple[str, ...] = ()  # what its user should know before it is served
    beliefs: tuple[BeliefComparison, ...] = ()  # of tables with few pairs: what predicts these
    tables: tuple[TableContribution, ...] = ()  # which table helps and which harms; empty for a single one
    compositions: tuple[DomainComposition, ...] = ()  # of groups of three and more


def train(
    tables: Sequence[Path],
    work: Path,
    *,
    seed: int = 0,
    occasion: str = "",
    publish_to: Path | None = None,
    held_out: frozenset[Pair] = frozenset(),
    groups: Sequence[Path] = (),
    tracking: str | None = None,
    champion: str = "",
    notice: str = "",
    measured_pairs: bool = True,
    models: Mapping[str, ModelSettings] = MODELS,
    found_settings: Sequence[FoundSettings] = (),
    changed_domains: frozenset[DomainKey] = frozenset(),
    notes: Mapping[str, str] | None = None,
    engine: Engine | None = None,
    report: Callable[[str], None] | None = None,
) -> TrainingResult:
    """Train all models on the tables, and publish and register the best, or the `champion` that is named.

    `work` is the workspace; `held_out` are unordered pairs that no model is fitted or selected on, and that are scored
    separately; `groups` are tables of which only the groups of three and more are learned from. The folder goes to
    `publish_to`, else to `models/challenger` of the workspace; the first model of a registry that passes the gate
    becomes its champion, in `models/champion`, which is served by default. `tracking` is the address of an MLflow
    server; without one the runs stay in the workspace. `occasion` begins the name of the run. `changed_domains` are
    device types and modes whose software stack is known to have changed: labels there may contradict the champion.
    `found_settings` are of further models, beside those with the settings that ship; folds search settings of their own
    where these would have been chosen by what they test. `notes` are further texts for the run, by file name.
    `notice` is added to the card, where the licence of a table asks for it; without `measured_pairs` the folder holds
    no measurement of a pair. The folds are fitted on the `engine`, each of which is kept in the workspace when it is
    done, until the training has succeeded: one that was interrupted goes on from there.

    Raises InvalidInputError for an unknown champion, TableError for a broken table, UnfitError for unusable data or a
    place that cannot be written, UnavailableError for a server that does not answer, ModelError for an export that
    differs from its model.
    """
    report = report or (lambda _: None)
    encoder = FeatureEncoder()
    require_model(champion, (*models, *(found.name for found in found_settings)))

    # 1. Read the tables and split off the held-out pairs.
    source, beside = read_source_tables(tables), read_group_tables(groups)
    rows = training_rows(source.tables, encoder, held_out=held_out)
    training_set, held_out_set = rows.fitted, rows.held_out
    models = {**models, **tuned_models(found_settings, (source, beside), work)}

    # 2. Check that the results can be stored.
    folder = publish_to or model_registry.challenger_folder(work)
    require_replaceable(folder)
    prepare_workspace(work, tracking)
    require_access(work, tracking)

    # 3. Cross-validate and fit every model, and select the champion.
    pairs, workloads = len(training_set), len(training_set.workloads)
    report(f"{pairs} ordered pairs of {workloads} workloads, {len(held_out_set)} held out")
    warnings = tuple(small_domain_warnings(training_set))
    for line in (*(each.text() for each in rows.campaigns), *warnings):
        report(line)
    clock = _training_clock(training_set, models, len(source.tables), seed, report)
    runner = Runner(engine=engine, folder=work / FOLDS_FOLDER, report=report, clock=clock)
    tables_effect = table_contributions(
        rows.measured,
        [table.name for table in source.tables],
        models.get(FAST_MODEL, next(iter(models.values()))),
        seed,
        clock,
    )
    for contribution in tables_effect:
        report(contribution.text())
    candidates = train_candidates(training_set, held_out_set, models, seed=seed, requested=champion, runner=runner)

    # 4. Let it predict as a belief does where that is better for the few pairs of a table.
    believed = with_beliefs(candidates, held_out_set, read_table_beliefs(tables, source.tables), source.tables, report)
    candidates = believed.candidates

    # 5. Fit how slowdowns of groups are composed, where that errs less than the registry's champion does.
    served = _served_compositions(work, tracking, encoder)
    compositions = published_compositions(candidates, source, encoder, present=served, beside=beside)
    for line in _composition_texts(compositions, beside):
        report(line)
    clock.finish("groups", "groups of three and more")

    # 6. Export the champion and check its parity.
    report("exporting and checking against the fitted models")
    publication = build_publication(
        candidates,
        source,
        encoder,
        pair_intervals=believed.pairs,
        comparisons=believed.comparisons,
        compositions=compositions,
        warnings=warnings,
        notice=notice,
        measured_pairs=measured_pairs,
        latencies=latency_publications(
            source,
            encoder,
            models,
            held_out=held_out,
            seed=seed,
            runner=runner,
            notice=notice,
            measured_pairs=measured_pairs,
        ),
    )

    clock.finish("export", "exported and checked")

    report("recording the run")
    run_name = training_name([table.name for table in source.tables], occasion)
    with tracked_run(work, run_name, tracking) as run:
        # 7. Judge it against the registry's champion.
        with model_registry.fetch_champion(run.mlflow) as current:
            champion_now = (
                None
                if current is None
                else read_champion(current.version.number, current.version.model, current.folder, encoder)
            )
            verdict = gate_verdict(
                candidates.champion_model,
                champion_now,
                training_set,
                held_out_set,
                candidates.evaluations,
                seed=seed,
                changed_domains=changed_domains,
            )
        # 8. Log the training.
        run.log_tables(source, tables)
        if beside is not None:
            run.log_tables(beside, groups)
        log_training(run, candidates, publication, verdict)
        log_contributions(run, tables_effect, rows.campaigns)
        for file, text in (notes or {}).items():
            run.log_text(file, text)
        # 9. Publish the model folder.
        version = publish(folder, publication)
        # 10. Register the model.
        registered = model_registry.register(
            run,
            folder,
            publication,
            version=version,
            verdict=verdict,
            judged_against=None if current is None else current.version.number,
        )

    clock.finish("record", "recorded and published")

    # 11. Publish the first champion of a registry as such.
    if registered.champion and folder != model_registry.champion_folder(work):
        model_registry.copy_folder(folder, model_registry.champion_folder(work))
        folder = folder if publish_to else model_registry.champion_folder(work)
    runner.delete_results()
    return TrainingResult(
        champion=candidates.champion,
        selected_by=candidates.selected_by,
        scores=candidates.scores,
        folder=folder,
        version=version,
        run_id=run.id,
        registered=registered,
        verdict=verdict,
        rows=len(training_set),
        worst_parity=publication.worst_parity,
        warnings=warnings,
        beliefs=believed.comparisons,
        tables=tables_effect,
        compositions=compositions,
    )


def latency_publications(
    source: SourceTables,
    encoder: PairEncoder,
    models: Mapping[str, ModelSettings],
    *,
    held_out: frozenset[Pair] = frozenset(),
    seed: int,
    runner: Runner,
    notice: str = "",
    measured_pairs: bool = True,
) -> dict[str, Publication]:
    """Return, for each latency metric of which the tables hold enough rows, the publication of its best model.

    No pair of `held_out` is fitted. A metric with too few rows is left out, and reported where it has any.
    """
    publications = {}
    for metric in LATENCY_METRICS:
        count = sum(pair.metric == metric for table in source.tables for pair in table.ok_pairs)
        if not count:
            continue
        try:
            rows = training_rows(source.tables, encoder, metric=metric, held_out=held_out)
            runner.say(f"{metric}: {len(rows.fitted)} rows of services")
            inside = replace(runner.inside(metric), clock=None)
            candidates = train_candidates(rows.fitted, rows.held_out, models, seed=seed, runner=inside)
        except UnfitError as error:
            runner.say(f"{metric} is not learned from {count} rows: {error.what} ({error.value})")
            continue
        told = ", ".join(
            f"{split} {scores.mae:.4f}" for split, name, scores in candidates.scores if name == candidates.champion
        )
        runner.say(f"{metric}: best model {candidates.champion}, MAE of speed {told}")
        publications[metric] = build_publication(
            candidates, source, encoder, notice=notice, measured_pairs=measured_pairs
        )
    return publications


def _training_clock(
    training_set: Dataset, models: Mapping[str, ModelSettings], tables: int, seed: int, report: Callable[[str], None]
) -> TimeLeft:
    """Return a clock that expects all tasks of a training."""
    clock = TimeLeft(report)
    if tables > 1:
        clock.expect(TABLE_TASK, tables)
    folds = sum(len(each.folds) for each in training_validations(training_set, tuple(models.values()), seed))
    clock.expect(predict_fold.__name__, folds)
    for kind in (*models, *AFTER_FITS):
        clock.expect(kind)
    return clock


def small_domain_warnings(training_set: Dataset) -> list[str]:
    """Return a warning for every domain (device type and mode) whose training rows are few or one-sided.

    One line for each domain with so few rows that its intervals come from other domains, and one for each in which
    no two different jobs were measured together.
    """
    if len(training_set.domains) == 1:
        return []
    mixed = training_set.rows.victim != training_set.rows.neighbour
    warnings = []
    for k, domain in enumerate(training_set.domains):
        name, in_domain = f"{domain.device_type}/{domain.mode}", training_set.domain == k
        count = int(in_domain.sum())
        if 0 < count < MIN_DOMAIN_ROWS:
            warnings.append(
                f"warning: only {count} ordered pairs of {name}: they calibrate its level; predictions there rest on "
                f"other domains, and their intervals are too narrow; measure at least {MIN_DOMAIN_ROWS}"
            )
        if count and not (in_domain & mixed).any():
            warnings.append(
                f"warning: {name} has pairs of a job with a copy of itself alone: good for those; of two different "
                "jobs there nothing was measured, predictions rest on other domains"
            )
    return warnings


def _composition_texts(compositions: Sequence[DomainComposition], beside: SourceTables | None) -> Iterator[str]:
    """Yield a line about each composition, and one where the tables `beside` the training taught nothing."""
    yield from (composition.text() for composition in compositions)
    if beside is not None and not any(composition.table for composition in compositions):
        yield "--group-data: nothing learned, its groups are of device types and modes that have their own or none here"


def _served_compositions(
    work: Path, tracking: str | None, encoder: FeatureEncoder
) -> Mapping[DomainKey, GroupComposition]:
    """Return the compositions of groups of the registry's champion, by domain.

    Empty without a champion that this program can serve.
    """
    with mlflow_connection(work, tracking) as mlflow, model_registry.fetch_champion(mlflow) as current:
        if current is None:
            return {}
        try:
            return read_manifest(current.folder, encoder.fingerprint).compositions
        except ModelError:
            return {}
