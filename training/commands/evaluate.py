"""Score models on measured tables, out of fold, beside the cheap baselines; nothing is written."""

from enum import StrEnum
from typing import Annotated

import typer

from interfere.commands.output import JsonFlag, emit, progress_note
from training.commands.options import Data, Seed, Work, workspace

app = typer.Typer(add_completion=False)


class FactsChoice(StrEnum):
    """Which facts the models read."""

    EACH = "each"
    ALL = "all"
    MEASURED = "without-static"
    UTILISATION = "utilisation"


@app.command()
def evaluate(
    data: Data,
    work: Work = None,
    seed: Seed = 0,
    split: Annotated[str, typer.Option(help="pair or job; both when left out.")] = "",
    models: Annotated[str, typer.Option(help="Comma-separated names; all when left out.")] = "",
    facts: Annotated[FactsChoice, typer.Option(help="What the models may read; each in turn by default.")] = (
        FactsChoice.EACH
    ),
    as_json: JsonFlag = False,
) -> None:
    """Score models on measured tables, out of fold, beside the cheap baselines; nothing is written.

    The same models are scored on all facts, without what was traced from the architecture (where there is any), and on
    utilisation and memory alone: what a site has that changes nothing.
    """
    from rich.console import Group

    from training.commands.documents import scores_document, scores_table
    from training.evaluation import evaluate as run
    from training.facts import Facts
    from training.sources import table_folders
    from training.splits import CHOOSING

    found = run(
        table_folders(data, workspace(work)), seed=seed, models=models, splits=(split,) if split else CHOOSING,
        facts=tuple(Facts) if facts is FactsChoice.EACH else (Facts(facts.value),), report=progress_note,
    )  # fmt: skip
    scores = {name: [(e.split, e.model, e.scores) for e in made] for name, made in found.items()}
    document = {"seed": seed, "scores": {str(name): scores_document(one) for name, one in scores.items()}}
    tables = [scores_table(one, title=f"facts: {name}") for name, one in scores.items()]
    emit(document, Group(*tables), as_json=as_json)
