"""What the importers make of the user's copy of the public files: the figures that must hold, printed and recorded."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from interfere.data.importers.gavel import CENSORED_REASON, import_gavel
from interfere.data.importers.import_result import ImportResult
from interfere.data.importers.kernels.kernel_files import import_kernels
from interfere.data.importers.lucid import DEFAULT_SPEED_MODELS, import_lucid
from interfere.data.importers.published_traces import import_helios, import_philly
from interfere.features.pair import FeatureEncoder
from tests.bench.history import record
from tests.data.importers.public_files import public

pytestmark = pytest.mark.bench


def show(name: str, figures: dict[str, float]) -> None:
    record(name, figures)
    for what, value in figures.items():
        print(f"{name}: {what} {value:g}")


def timed(work: Callable[[], ImportResult]) -> tuple[ImportResult, float]:
    start_s = time.perf_counter()
    return work(), time.perf_counter() - start_s


def count(imported: ImportResult, words: str) -> int:
    return sum(notice.count for notice in imported.notices if words in notice.subject)


def test_gavel() -> None:
    path = public("gavel/oracle_throughputs.json")
    got, taken_s = timed(lambda: import_gavel(path))
    feasible = sum(pair.feasible for pair in got.pairs)
    figures = {
        "rows": len(got.pairs),
        "feasible": feasible,
        "not": len(got.pairs) - feasible,
        "right_censored": sum(pair.reason == CENSORED_REASON for pair in got.pairs),
        "read_s": taken_s,
    }
    show("import_gavel", figures)
    assert (figures["rows"], figures["feasible"], figures["not"]) == (2028, 1858, 170)


def test_lucid() -> None:
    path = public("lucid")
    got, taken_s = timed(lambda: import_lucid(path))
    targets = {pair.victim.split()[0] for pair in got.pairs}
    kept = sum(len(pair.passes) for pair in got.pairs)
    figures = {
        "rows": len(got.pairs),
        "speeds": kept,
        "speeds_above_one": count(got, "above 1"),
        "defaulted_dropped": count(got, "PPO"),
        "defaulted_targets": len(targets & set(DEFAULT_SPEED_MODELS)),
        "co_located_columns_dropped": count(got, "columns of colocate_info.csv"),
        "read_s": taken_s,
    }
    show("import_lucid", figures)
    assert figures["defaulted_targets"] == 0
    assert kept + figures["defaulted_dropped"] == 2 * 713


def test_co_located_utilisation_never_becomes_a_feature(tmp_path: Path) -> None:
    """Whatever stands in the co-located columns, every feature of every job is the same, byte by byte."""
    original = import_lucid(public("lucid"))
    for name in ("single_data.csv", "colocate_info.csv"):
        lines = public(f"lucid/{name}").read_text(encoding="utf-8").splitlines()
        if name == "colocate_info.csv":
            lines = [lines[0], *(",".join([*line.split(",")[:-3], "1", "2", "3"]) for line in lines[1:])]
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    other = import_lucid(tmp_path)
    encode = FeatureEncoder().encode_jobs
    rows, others = (encode(one.jobs, "rtx3090", "timeslice") for one in (original, other))
    assert rows.tobytes() == others.tobytes()
    assert [pair.slowdown for pair in other.pairs] == [pair.slowdown for pair in original.pairs]
    print(f"import_lucid: {rows.shape[1]} features of {rows.shape[0]} jobs equal under other co-located columns")


def test_traces_and_kernel_tables() -> None:
    throughputs = public("gavel/oracle_throughputs.json")
    work: dict[str, Callable[[], ImportResult]] = {
        "philly_103959": lambda: import_philly(public("gavel/philly_103959.trace"), throughputs=throughputs),
        "philly_7f04ca": lambda: import_philly(public("gavel/philly_7f04ca.trace"), throughputs=throughputs),
        "venus": lambda: import_helios(public("venus/jobs_4vc.csv"), vc_config=public("venus/vc_config.csv")),
        "orion": lambda: import_kernels("orion", public("orion")),
        "echo": lambda: import_kernels("nsight", public("echo/merged_features.csv"), device_type="a100"),
    }
    figures = {}
    for name, one in work.items():
        got, figures[f"{name}_s"] = timed(one)
        figures[f"{name}_jobs"] = len(got.trace.jobs if got.trace else got.jobs)
        figures[f"{name}_kernels"] = sum(len(job.kernels) for job in got.jobs)
        figures[f"{name}_without_duration"] = count(got, "no duration")
    show("import_others", {what: value for what, value in figures.items() if value})
    assert (figures["venus_jobs"], figures["philly_103959_jobs"], figures["philly_7f04ca_jobs"]) == (8104, 986, 972)
