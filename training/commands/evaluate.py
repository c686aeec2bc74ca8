"""Score models on measured tables, out of fold, and baselines."""

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from interfere.commands.options import DEFAULT_WORK, Work
from interfere.commands.output import JsonFlag, emit, keeps_when_interrupted, progress_note
from interfere.extensions import ExtensionKind, extension_names
from interfere.records.checks import METRICS
from interfere.training.commands.options import EngineName, Workers

app = typer.Typer(add_completion=False)
NAMES = ("mean", "additive", "gbdt", "mlp", "gp", "ensemble")  # of the catalogue, which is slow to import


class FactsChoice(StrEnum):
    """Which facts the models may read."""

    EACH = "each"
    ALL = "all"
    MEASURED = "without-static"
    UTILISATION = "utilisation"


@app.command()
@keeps_when_interrupted("finished folds are kept in the workspace: the same command goes on from them")
def evaluate(
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            help="NAME=TABLE, or TABLE: a folder, or one of the workspace or shipped. Repeatable: each is "
            "scored by itself, tables of one NAME together.",
            show_default=False,
        ),
    ] = None,
    work: Work = DEFAULT_WORK,
    seed: Annotated[
        list[int] | None,
        typer.Option(min=0, help="Seed of folds and fits, 0 when left out; repeat for the mean over seeds."),
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(
            help="What the models have not seen: pair, job, family, neighbour, device, time, service_pair, "
            "sparse10, sparse20, sparse40, or package:function; pair and job when left out. Repeatable."
        ),
    ] = None,
    splits: Annotated[
        str,
        typer.Option(
            metavar="VERSION", help="Published folds in place of drawn ones: v1, every split that the rows allow."
        ),
    ] = "",
    metric: Annotated[
        str, typer.Option(help=f"Whose slowdown: {METRICS[0]}, or of services {', '.join(METRICS[1:])}.")
    ] = METRICS[0],
    folds: Annotated[int | None, typer.Option(min=1, help="Number of folds of a random split.")] = None,
    models: Annotated[
        str,
        typer.Option(
            "--models",
            "--model",
            help=f"Comma-separated names ({extension_names(ExtensionKind.MODEL, *NAMES)}) or package:Class, an "
            "estimator with scikit-learn's fit and predict; all of ours when left out. Baselines are always scored.",
        ),
    ] = "",
    feature: Annotated[
        list[str] | None,
        typer.Option(
            help="package:function, from the DataFrame of pairs to a further column for estimators. Repeatable.",
            show_default=False,
        ),
    ] = None,
    facts: Annotated[
        FactsChoice, typer.Option(help="Which facts the models may read; each choice in turn by default.")
    ] = FactsChoice.EACH,
    poor_profiles: Annotated[
        bool,
        typer.Option(
            "--poor-profiles",
            help="Also ask the published model about unseen jobs of which fewer facts are known than of those that it "
            "was fitted on; on the splits job and family, with the first seed.",
        ),
    ] = False,
    workers: Workers = 1,
    engine: EngineName = "",
    out: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            metavar="SCORES ROWS",
            help="Files for the scores, and for every prediction: row, split, fold, seed, truth, median, interval "
            "(.parquet or .csv).",
            show_default=False,
        ),
    ] = None,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="ROWS ROWS", help="Compare two runs by their rows; scores nothing.", show_default=False),
    ] = None,
    plots: Annotated[
        Path | None, typer.Option(help="Folder for pages with figures (HTML).", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Score models on measured tables, out of fold, beside the cheap baselines.

    The same models are scored on all facts, on all but those traced from the architecture (where a table has such), and
    on utilisation and memory alone: what every site has without changing its jobs. The published model is the one that
    training would choose from the training rows alone. Groups of three and more, where the tables hold some, are scored
    beside their sum and product, with groups held out and with jobs held out. Nothing is written but plots, --out, and,
    until it ends, the folds that are done: interrupted, the same command goes on from there. docs/benchmark.md says how
    an own model, split or column is scored.
    """
    from interfere.errors import InvalidInputError
    from interfere.reports.document import Document
    from interfere.reports.text_forms import json_document, markdown
    from interfere.study.engine import Runner
    from interfere.study.engines.catalogue import engine_of
    from interfere.training.evaluation.cross_validation import FOLDS_FOLDER
    from interfere.training.evaluation.fewer_facts import FactSet, poor_profiles_section
    from interfere.training.evaluation.leaderboard import (
        evaluate_tables,
        folders_by_name,
        score_published_on_poor_profiles,
    )
    from interfere.training.evaluation.runs import (
        check_writable,
        compare_runs,
        leaderboard_documents,
        leaderboards_report,
        make_figure_folder,
        write_leaderboard_pages,
        write_run,
    )
    from interfere.training.evaluation.splits import SELECTION_SPLITS, VERSIONS
    from interfere.training.groups.evaluation import evaluate_groups, groups_parts

    if compare is not None:
        report, comparisons = compare_runs(*compare)
        emit({"comparisons": comparisons, "document": json_document(report)}, report, as_json=as_json)
        return
    if not data:
        raise InvalidInputError("no table to score on", remedy="name one: --data cpu")
    if splits and (splits not in VERSIONS or split or folds or poor_profiles):
        remedy = (
            f"one of {', '.join(VERSIONS)}, without --split, --folds and --poor-profiles: they draw folds of their own"
        )
        raise InvalidInputError("published splits", value=splits, remedy=remedy)
    if metric not in METRICS or (poor_profiles and metric != METRICS[0]):
        remedy = f"one of {', '.join(METRICS)}; --poor-profiles asks about {METRICS[0]}"
        raise InvalidInputError("no such metric", value=metric, remedy=remedy)
    if plots is not None:
        make_figure_folder(plots)
    check_writable(out or ())
    folders = folders_by_name(data, work)
    runner = Runner(engine=engine_of(workers, engine), folder=work / FOLDS_FOLDER, report=progress_note)
    leaderboards = [
        leaderboard
        for name, tables in folders.items()
        for leaderboard in evaluate_tables(
            tables,
            name=name,
            seeds=tuple(seed or (0,)),
            models=models,
            splits=VERSIONS[splits] if splits else tuple(split or SELECTION_SPLITS),
            version=splits,
            metric=metric,
            features=tuple(feature or ()),
            count=folds,
            facts=tuple(FactSet) if facts is FactsChoice.EACH else (FactSet(facts.value),),
            runner=runner,
        )
    ]
    if out is not None:
        write_run(leaderboards, *out)
    if plots is not None:
        progress_note("\n".join(map(str, write_leaderboard_pages(leaderboards, plots))))
    documents, parts = leaderboard_documents(leaderboards), list(leaderboards_report(leaderboards).parts)
    if groups := evaluate_groups(leaderboards, folders) if metric == METRICS[0] else ():
        parts += groups_parts(groups)
        for document in documents:
            of_document = (each for each in groups if each.data == document["data"])
            document["groups"] = [asdict(each) for each in of_document if each.split in ("group", document["split"])]
    if poor_profiles:
        scored = score_published_on_poor_profiles(leaderboards, folds, runner)
        parts += [poor_profiles_section(title, scores) for _, title, scores in scored]
        for document in documents:
            document["poor_profiles"] = [
                asdict(score)
                for key, _, scores in scored
                for score in scores
                if key == (document["data"], document["split"])
            ]
    text = markdown(Document("Leaderboards", tuple(parts)))
    runner.delete_results()
    emit(documents[0] if len(documents) == 1 else documents, text, as_json=as_json)
