"""Score models on measured tables, out of fold, beside the cheap baselines."""

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from interfere.commands.options import DEFAULT_WORK, Work
from interfere.commands.output import JsonFlag, emit, progress_note
from interfere.training.commands.options import EngineName, Workers

app = typer.Typer(add_completion=False)


class FactsChoice(StrEnum):
    """Which facts the models may read."""

    EACH = "each"
    ALL = "all"
    MEASURED = "without-static"
    UTILISATION = "utilisation"


@app.command()
def evaluate(
    data: Annotated[
        list[str],
        typer.Option(
            "--data",
            help="NAME=TABLE, or TABLE: a folder, or one of the workspace or shipped. Repeatable: each is "
            "scored by itself, tables of one NAME together.",
        ),
    ],
    work: Work = DEFAULT_WORK,
    seed: Annotated[
        list[int] | None,
        typer.Option(min=0, help="Seed of folds and fits, 0 when left out; repeat for the mean over seeds."),
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(
            help="What the models have not seen: pair, job, family, neighbour, device, time, sparse10, sparse20 or "
            "sparse40; pair and job when left out. Repeatable."
        ),
    ] = None,
    folds: Annotated[int | None, typer.Option(min=1, help="Number of folds of a random split.")] = None,
    models: Annotated[
        str, typer.Option(help="Comma-separated names; all when left out. Baselines are always scored.")
    ] = "",
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
    plots: Annotated[
        Path | None, typer.Option(help="Folder for pages with figures (HTML).", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Score models on measured tables, out of fold, beside the cheap baselines.

    The same models are scored on all facts, on all but those traced from the architecture (where a table has such), and
    on utilisation and memory alone: what every site has without changing its jobs. The published model is the one that
    training would choose from the training rows alone. Groups of three and more, where the tables hold some, are scored
    beside their sum and product, with groups held out and with jobs held out. Nothing is written but plots, and, until
    it ends, the folds that are done: interrupted, the same command goes on from there.
    """
    from interfere.reports.document import Document
    from interfere.reports.text_forms import markdown
    from interfere.study.engine import Runner
    from interfere.study.engines.catalogue import engine_of
    from interfere.training.evaluation.cross_validation import FOLDS_FOLDER
    from interfere.training.evaluation.fewer_facts import FactSet, poor_profiles_section
    from interfere.training.evaluation.leaderboard import (
        evaluate_named_tables,
        folders_by_name,
        leaderboard_documents,
        leaderboards_report,
        make_figure_folder,
        score_published_on_poor_profiles,
        write_leaderboard_pages,
    )
    from interfere.training.evaluation.splits import SELECTION_SPLITS
    from interfere.training.groups.evaluation import evaluate_groups, groups_parts

    if plots is not None:
        make_figure_folder(plots)
    folders = folders_by_name(data, work)
    runner = Runner(engine=engine_of(workers, engine), folder=work / FOLDS_FOLDER, report=progress_note)
    leaderboards = evaluate_named_tables(
        folders,
        seeds=tuple(seed or (0,)),
        models=models,
        splits=tuple(split or SELECTION_SPLITS),
        count=folds,
        facts=tuple(FactSet) if facts is FactsChoice.EACH else (FactSet(facts.value),),
        runner=runner,
    )
    if plots is not None:
        progress_note("\n".join(map(str, write_leaderboard_pages(leaderboards, plots))))
    documents, parts = leaderboard_documents(leaderboards), list(leaderboards_report(leaderboards).parts)
    if groups := evaluate_groups(leaderboards, folders):
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
