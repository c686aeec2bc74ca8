"""What a run of `interfere evaluate` leaves: its report, documents, pages and tables; and two runs, compared.

For pandas a run is two tables. `scores`: one row for each table, fact set, split, model and seed, with every score of
`Scores`. `rows`: one for each of their tests, with the fold, the measured slowdown (`truth`), the predicted `median`,
and the ends of its 90 % interval. Two runs are compared by their rows, by the rule of the gate.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interfere.errors import InvalidInputError
from interfere.file_writing import write_atomically
from interfere.reports.document import (
    Axis,
    Colour,
    Column,
    Document,
    Estimate,
    Mark,
    PlotRow,
    RowPlot,
    Sentence,
    Series,
    Table,
    Tone,
)
from interfere.reports.html_page import write_html_page
from interfere.reports.numbers import COUNT, fixed
from interfere.training.baselines import BASELINES, Baseline
from interfere.training.dataset import METRIC, pair_keys
from interfere.training.evaluation.figures import (
    ERROR,
    ERROR_TITLE,
    SPLIT_TITLES,
    error_by_job,
    predicted_vs_measured,
)
from interfere.training.evaluation.gate import PairedPredictions, compare
from interfere.training.evaluation.leaderboard import Leaderboard
from interfere.training.evaluation.scores import LEGEND

if TYPE_CHECKING:
    import pandas as pd

BOARD = ("data", "metric", "facts", "split", "splits_version")  # columns that name a leaderboard
RUN = (*BOARD, "model", "seed")
PAIR = ("victim", "neighbour", "device_type", "mode")
TEST = (*RUN, "fold", "row")
VALUES = ("truth", "median", "low", "high")  # slowdowns
PERCENT = fixed(2, "%", quantity="percent")


def leaderboards_report(leaderboards: Sequence[Leaderboard]) -> Document:
    """Return the report of all leaderboards, with the meaning of their columns."""
    sections = (leaderboard.section() for leaderboard in leaderboards)
    cited = "; ".join(f"{baseline.name}: {baseline.source}" for baseline in BASELINES if isinstance(baseline, Baseline))
    notes = (Sentence(f"{LEGEND}.", tone=Tone.NOTE), Sentence(f"Published baselines: {cited}.", tone=Tone.NOTE))
    return Document("Leaderboards", (*sections, *notes))


def leaderboard_documents(leaderboards: Sequence[Leaderboard]) -> list[dict[str, Any]]:
    """Return one document per table and split, for the largest set of facts. The scores on fewer facts are under
    `fewer_facts`."""
    documents: dict[tuple[str, str], dict[str, Any]] = {}
    for leaderboard in leaderboards:
        key = leaderboard.data, leaderboard.split
        if key in documents:
            documents[key]["fewer_facts"].append(leaderboard.document())
        else:
            documents[key] = leaderboard.document() | {"fewer_facts": []}
    return list(documents.values())


# --- pages ------------------------------------------------------------------------------------------------------------


def leaderboard_figure(leaderboard: Leaderboard) -> RowPlot:
    """Return the MAE of every model with its standard error; baselines are grey, the published model is red."""
    kinds = (
        Series(name=f"published: {leaderboard.published}", mark=Mark.BAR, colour=Colour.RED),
        Series(name="baseline", mark=Mark.BAR, colour=Colour.GREY),
        Series(name="model", mark=Mark.BAR),
    )
    rows = []
    for row in leaderboard.rows:
        kind = 0 if row.name == leaderboard.published else 1 if row.baseline else 2
        error = Estimate(row.scores.mae, row.scores.mae - row.scores.mae_se, row.scores.mae + row.scores.mae_se)
        rows.append(PlotRow(label=row.name, values=tuple((error,) if k == kind else () for k in range(3))))
    split = SPLIT_TITLES.get(leaderboard.split, leaderboard.split)
    return RowPlot(
        title=f"{leaderboard.data}, {split}, facts: {leaderboard.facts}",
        axis=Axis(title=f"{ERROR_TITLE}, ± standard error over victims", form=ERROR),
        series=kinds,
        rows=tuple(rows),
    )


def leaderboard_page(leaderboard: Leaderboard) -> Document:
    """Return a leaderboard with its figure, and the predictions and errors by job of the published model."""
    published = leaderboard.row(leaderboard.published).evaluations[:1]
    figures = (
        leaderboard_figure(leaderboard),
        predicted_vs_measured(leaderboard.dataset, published),
        error_by_job(leaderboard.dataset, published),
    )
    return Document(
        f"{leaderboard.data}, {SPLIT_TITLES.get(leaderboard.split, leaderboard.split)}",
        (leaderboard.section(), *figures),
    )


def make_figure_folder(folder: Path) -> None:
    """Make the folder, before the work starts. Raises InvalidInputError where it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".write").touch()
        (folder / ".write").unlink()
    except OSError as error:
        raise InvalidInputError(
            f"figures cannot be written there ({error.strerror or error})",
            value=str(folder),
            remedy="choose a folder you may write to with --plots",
        ) from error


def write_leaderboard_pages(leaderboards: Sequence[Leaderboard], folder: Path) -> list[Path]:
    """Write a page for each leaderboard, and return the files."""
    files = []
    for leaderboard in leaderboards:
        title = f"{leaderboard.data}_{leaderboard.split}_{leaderboard.facts}.html"
        file = folder / re.sub(r"[^\w.-]+", "-", title)  # the name of the data is free text
        files.append(write_html_page(file, leaderboard_page(leaderboard)))
    return files


# --- tables for pandas ------------------------------------------------------------------------------------------------


def score_frame(leaderboards: Sequence[Leaderboard]) -> "pd.DataFrame":
    """Return one row of scores for each table, fact set, split, model and seed."""
    import pandas as pd

    sources = {baseline.name: baseline.source for baseline in BASELINES if isinstance(baseline, Baseline)}
    return pd.DataFrame(
        [
            _run_of(board, row.name, seed)
            | {"is_baseline": row.baseline, "source": sources.get(row.name, "")}
            | {"is_published": row.name == board.published}
            | asdict(evaluation.scores)
            for board in leaderboards
            for row in board.rows
            for seed, evaluation in zip(board.seeds, row.evaluations, strict=True)
        ]
    )


def row_frame(leaderboards: Sequence[Leaderboard]) -> "pd.DataFrame":
    """Return one row for each prediction: which run and fold, which pair, what was measured and what was predicted."""
    import pandas as pd

    parts = []
    for board in leaderboards:
        pairs = pd.DataFrame([map(str, key) for key in pair_keys(board.dataset)], columns=list(PAIR))
        truth = np.exp(board.dataset.log_slowdown)
        for model in board.rows:
            for seed, tests in zip(board.seeds, model.evaluations, strict=True):
                part = pairs.iloc[tests.index].reset_index(drop=True)
                for place, (name, value) in enumerate(_run_of(board, model.name, seed).items()):
                    part.insert(place, name, value)
                parts.append(
                    part.assign(
                        fold=tests.fold,
                        hides=[tests.folds[k].hides for k in tests.fold],
                        row=tests.index,
                        truth=truth[tests.index],
                        median=np.exp(tests.predicted_log),
                        low=np.exp(tests.low),
                        high=np.exp(tests.high),
                    )
                )
    return pd.concat(parts, ignore_index=True)


def _run_of(board: Leaderboard, model: str, seed: int) -> dict[str, Any]:
    return dict(
        zip(RUN, (board.data, board.metric, str(board.facts), board.split, board.version, model, seed), strict=True)
    )


def check_writable(files: Sequence[Path]) -> None:
    """Raise InvalidInputError where a file cannot be written, before the work starts."""
    for file in files:
        if file.is_dir() or not file.resolve().parent.is_dir():
            remedy = "give two files in a folder that exists: --out scores.parquet rows.parquet"
            raise InvalidInputError("the tables of a run cannot be written there", value=str(file), remedy=remedy)


def write_run(leaderboards: Sequence[Leaderboard], scores: Path, rows: Path) -> None:
    """Write scores and rows, as CSV where the name ends so, else as Parquet."""
    for path, frame in ((scores, score_frame(leaderboards)), (rows, row_frame(leaderboards))):
        write = frame.to_csv if path.suffix == ".csv" else frame.to_parquet
        write_atomically(path, lambda temporary, write=write: write(temporary, index=False))


# --- two runs ---------------------------------------------------------------------------------------------------------


def read_rows(path: Path) -> "pd.DataFrame":
    """Return the rows of a run. Raises InvalidInputError for a file that holds none."""
    import pandas as pd

    try:
        frame = pd.read_csv(path, keep_default_na=False) if path.suffix == ".csv" else pd.read_parquet(path)
        if "metric" not in frame:  # written before boards named it
            frame = frame.assign(metric=METRIC)
        return frame[[*TEST, *PAIR, *VALUES]]
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInputError(
            "no rows of a run", value=f"{path}: {error}", remedy="give what evaluate --out SCORES ROWS wrote as ROWS"
        ) from None


def compare_runs(first: Path, second: Path) -> tuple[Document, list[dict[str, Any]]]:
    """Return the comparison of two runs, as a report and as documents: error and regret of every model in both.

    Only tests that both runs hold are compared, with the interval of `gate.compare`. Where the runs share no model,
    every model of the second is compared with the first run's best. Raises InvalidInputError where they share no test.
    """
    frames = [read_rows(path) for path in (first, second)]
    boards = list(BOARD)
    found: list[dict[str, Any]] = []
    for key, ours in frames[0].groupby(boards, sort=False):
        theirs = frames[1].merge(ours[boards].head(1), on=boards)
        for old, new in _compared_models(ours, theirs):
            tests = [name for name in (*TEST, *PAIR) if name != "model"]
            both = ours[ours["model"] == old].merge(theirs[theirs["model"] == new], on=tests, suffixes=("", "_new"))
            if len(both):
                error, regret = compare([_paired(both)])
                figures = {"error": asdict(error), "regret": asdict(regret)}
                found.append(
                    dict(zip(boards, key, strict=True)) | {"first": old, "second": new, "tests": len(both)} | figures
                )
    if not found:
        remedy = "score the same --data with the same --splits, or --split and --seed"
        raise InvalidInputError("the two runs share no test", value=f"{first}, {second}", remedy=remedy)
    return _comparison(first, second, found), found


def _compared_models(ours: "pd.DataFrame", theirs: "pd.DataFrame") -> list[tuple[str, str]]:
    """Return (model of the first run, model of the second) of every comparison."""
    shared = [name for name in ours["model"].unique() if name in set(theirs["model"])]
    new = [name for name in theirs["model"].unique() if name not in shared]
    errors = (1 / ours["truth"] - 1 / ours["median"]).abs().groupby(ours["model"]).mean()
    return [(name, name) for name in shared] + [(str(errors.idxmin()), name) for name in new]


def _paired(both: "pd.DataFrame") -> PairedPredictions:
    """Return the tests of two models, the second run's as the challenger."""
    names = np.unique(np.concatenate([both["victim"], both["neighbour"]]).astype(str))
    domain = both.groupby(["device_type", "mode"], sort=True).ngroup()
    return PairedPredictions(
        domain=np.asarray(domain, dtype=np.int64),
        victim=np.searchsorted(names, both["victim"].to_numpy().astype(str)),
        neighbour=np.searchsorted(names, both["neighbour"].to_numpy().astype(str)),
        measured=np.log(both["truth"].to_numpy(dtype=np.float64)),
        challenger=np.log(both["median_new"].to_numpy(dtype=np.float64)),
        champion=np.log(both["median"].to_numpy(dtype=np.float64)),
    )


def _comparison(first: Path, second: Path, found: Sequence[dict[str, Any]]) -> Document:
    columns = (
        *map(Column, ("data", "split", "first run", "second run")),
        *(Column("tests", COUNT), Column("first MAE", ERROR), Column("second MAE", ERROR)),
        *(Column("difference from", ERROR), Column("to", ERROR)),
        *(Column("first regret", PERCENT, is_detail=True), Column("second regret", PERCENT, is_detail=True)),
    )
    rows = tuple(
        (
            *(f"{each['data']} ({each['facts']})", each["split"], each["first"], each["second"], each["tests"]),
            *(each["error"][name] for name in ("champion", "challenger", "low", "high")),
            *(each["regret"][name] for name in ("champion", "challenger")),
        )
        for each in found
    )
    legend = (
        "MAE of speed on the tests that both runs hold; the difference, second less first, with its 90 % interval by a "
        "bootstrap over jobs; regret, in %, of the matching that each run's predictions choose."
    )
    table = Table(title=f"{first.name} against {second.name}", columns=columns, rows=rows)
    return Document("Two runs", (table, Sentence(legend, tone=Tone.NOTE)))
