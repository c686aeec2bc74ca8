"""Score models on measured tables, out of fold, beside the cheap baselines; nothing is written."""

from typing import Annotated

import typer

from interfere.commands.output import JsonFlag, emit, progress_note
from training.commands.options import Data, Seed, Work, workspace

app = typer.Typer(add_completion=False)


@app.command()
def evaluate(
    data: Data,
    work: Work = None,
    seed: Seed = 0,
    split: Annotated[str, typer.Option(help="pair or job; both when left out.")] = "",
    models: Annotated[str, typer.Option(help="Comma-separated names; all when left out.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Score models on measured tables, out of fold, beside the cheap baselines; nothing is written."""
    from features.pair import Encoder
    from training.commands.documents import scores_document, scores_table
    from training.evaluation import evaluate as run
    from training.sources import table_folders
    from training.splits import SPLITS

    found = run(
        table_folders(data, workspace(work)), Encoder(), seed=seed, models=models, splits=(split,) if split else SPLITS,
        report=progress_note,
    )  # fmt: skip
    scores = [(e.split, e.model, e.scores) for e in found]
    emit({"seed": seed, "scores": scores_document(scores)}, scores_table(scores), as_json=as_json)
