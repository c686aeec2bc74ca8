"""Lucid's pairs and solo profiles: laws on small files in the format, and the real ones."""

from dataclasses import fields
from math import isnan
from pathlib import Path

import pytest

from interfere.data.importers.import_result import ImportResult
from interfere.data.importers.lucid import DEFAULT_SPEED_MODELS, import_lucid
from interfere.errors import TableError
from tests.data.importers.public_files import public

SOLO = """model,dataset,batchsize,amp,speed,gpu_util,gmem_util,gmem,label
VGG,CIFAR-10,32,0,320.0,40.0,20.0,2000.0,0
LSTM,Wikitext2,64,1,640.0,90.0,70.0,4000.0,2
PPO,LunarLander,32,0,5.0,10.0,0.0,1000.0,0
"""
HEAD = (
    ",model1,dataset1,gpu_num1,batchsize1,amp1,speed1,model2,dataset2,gpu_num2,batchsize2,amp2,speed2,"
    "gpu_util,gmem_util,gmem\n"
)
VGG, LSTM, PPO = "VGG,CIFAR-10,1,32,0", "LSTM,Wikitext2,1,64,1", "PPO,LunarLander,1,32,0"
NAMES = {"VGG": "VGG CIFAR-10 bs32 amp0", "LSTM": "LSTM Wikitext2 bs64 amp1", "PPO": "PPO LunarLander bs32 amp0"}


def row(one: str, speed1: object, other: str, speed2: object, util: object = 50.0) -> str:
    return f"0,{one},{speed1},{other},{speed2},{util},20.0,5000\n"


def read(folder: Path, *rows: str, solo: str = SOLO, head: str = HEAD) -> ImportResult:
    (folder / "single_data.csv").write_text(solo)
    (folder / "colocate_info.csv").write_text(head + "".join(rows))
    return import_lucid(folder)


def slowdowns(imported: ImportResult) -> dict[tuple[str, str], tuple[float, ...]]:
    short = {full: name for name, full in NAMES.items()}
    return {(short[p.victim], short[p.neighbour]): p.passes for p in imported.pairs}


def counts(imported: ImportResult) -> dict[str, int]:
    return {notice.subject: notice.count for notice in imported.notices}


def test_speed_becomes_slowdown_and_samples_a_second_a_step_time(tmp_path: Path) -> None:
    got = read(tmp_path, row(VGG, 0.5, LSTM, 0.8))
    assert slowdowns(got) == {("VGG", "LSTM"): (2.0,), ("LSTM", "VGG"): (1.25,)}
    job = got.jobs[0]
    assert (job.workload, job.family, job.device_type) == (NAMES["VGG"], "VGG", "rtx3090")
    assert job.step_time_s == 0.1
    assert job.memory_peak_bytes == 2000 * 2**20
    assert {p.mode for p in got.pairs} == {"timeslice"}


def test_co_located_utilisation_never_becomes_a_fact_of_a_job(tmp_path: Path) -> None:
    before = read(tmp_path, row(VGG, 0.5, LSTM, 0.8, util=50.0))
    after = read(tmp_path, row(VGG, 0.5, LSTM, 0.8, util="not even a number"))
    assert before.jobs == after.jobs
    assert [p.passes for p in before.pairs] == [p.passes for p in after.pairs]
    assert (before.jobs[0].gpu_util_frac, before.jobs[0].memory_util_frac) == (0.4, 0.2)
    assert counts(before)["columns of colocate_info.csv: gpu_util, gmem_util, gmem"] == 3


def test_jobs_with_default_speeds_are_kept_only_as_neighbours(tmp_path: Path) -> None:
    got = read(tmp_path, row(PPO, 1.0, LSTM, 0.8), row(PPO, 1.0, PPO, 1.0))
    assert slowdowns(got) == {("LSTM", "PPO"): (1.25,)}
    assert counts(got)["speeds of PPO and TD3"] == 3


def test_a_repeated_pair_is_one_more_pass_in_either_order(tmp_path: Path) -> None:
    got = read(tmp_path, row(VGG, 0.5, LSTM, 0.8), row(LSTM, 0.5, VGG, 0.25))
    assert slowdowns(got) == {("VGG", "LSTM"): (2.0, 4.0), ("LSTM", "VGG"): (1.25, 2.0)}
    assert counts(got)["speeds that repeat a pair already in the file"] == 2


def test_a_self_pair_is_one_row_with_both_sides(tmp_path: Path) -> None:
    got = read(tmp_path, row(VGG, 0.5, VGG, 0.8))
    assert slowdowns(got) == {("VGG", "VGG"): (2.0, 1.25)}
    assert "speeds that repeat a pair already in the file" not in counts(got)


def test_speeds_above_one_are_kept_and_counted(tmp_path: Path) -> None:
    got = read(tmp_path, row(VGG, 1.25, LSTM, 0.8))
    assert slowdowns(got)["VGG", "LSTM"] == (0.8,)
    assert counts(got)["of 2 speeds kept are above 1"] == 1


def test_rows_that_a_table_cannot_hold_are_dropped_and_counted(tmp_path: Path) -> None:
    unknown, several = VGG.replace("VGG", "AlexNet"), VGG.replace(",1,32", ",2,32")
    got = read(tmp_path, row(VGG, 0.5, LSTM, 0.8), row(unknown, 0.5, LSTM, 0.8), row(several, 0.5, LSTM, 0.8))
    assert len(got.pairs) == 2
    assert counts(got)["rows with a job that single_data.csv lacks"] == 1
    assert counts(got)["rows on several devices"] == 1


@pytest.mark.parametrize(
    ("bad", "place"),
    [
        (row(VGG, "fast", LSTM, 0.8), "row 3, column speed1"),
        (row(VGG, 0.5, LSTM, "-0.8"), "row 3, column speed2"),
        (row(VGG, 0.5, LSTM, "nan"), "row 3, column speed2"),
        (row(VGG, 0.5, LSTM, "1e309"), "row 3, column speed2"),
        (row(VGG, 0.5, LSTM, "0"), "row 3, column speed2"),
        (row(VGG, 0.5, LSTM, "98"), "row 3, column speed2"),
        (row(VGG, '"0,5"', LSTM, 0.8), "row 3, column speed1"),
        (row(VGG, "0,5", LSTM, 0.8), "row 3: more fields"),
        (row(VGG.replace(",0", ",2"), 0.5, LSTM, 0.8), "row 3, column amp1"),
        (row(VGG.replace("32", "32.5"), 0.5, LSTM, 0.8), "row 3, column batchsize1"),
        (row(VGG.replace("VGG", ""), 0.5, LSTM, 0.8), "row 3, column model1"),
        ("0,VGG,CIFAR-10\n", "row 3, column gpu_num1"),
        ("\n" + row(VGG, 0.5, LSTM, 0.8), "row 3"),
    ],
)
def test_an_edited_row_is_one_error_that_names_it(tmp_path: Path, bad: str, place: str) -> None:
    with pytest.raises(TableError) as caught:
        read(tmp_path, row(VGG, 0.5, LSTM, 0.8), bad)
    assert f"colocate_info.csv, {place}" in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("solo", "place"),
    [
        (SOLO.replace("90.0", "190.0"), "row 3, column gpu_util"),
        (SOLO.replace("640.0", "0"), "row 3, column speed"),
        (SOLO.replace("4000.0", "-1"), "row 3, column gmem"),
        (SOLO.replace("gmem_util", "memutil"), "row 1, column gmem_util: missing"),
        (SOLO.replace("label", "speed"), "row 1, column speed: named twice"),
        (SOLO + SOLO.splitlines(keepends=True)[1], "row 5, column model: a second profile"),
        (SOLO[:-10], "row 4: the last row has no line end"),
        (SOLO.splitlines(keepends=True)[0], "row 2: no rows"),
        ("", "row 1: the file is empty"),
    ],
)
def test_an_edited_solo_file_is_one_error_that_names_it(tmp_path: Path, solo: str, place: str) -> None:
    with pytest.raises(TableError) as caught:
        read(tmp_path, row(VGG, 0.5, LSTM, 0.8), solo=solo)
    assert f"single_data.csv, {place}" in str(caught.value)


def test_a_folder_that_lacks_a_file_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"has no single_data\.csv"):
        import_lucid(tmp_path)


def test_the_layout_of_the_publishers_repository_is_found(tmp_path: Path) -> None:
    for below, name, text in (
        ("simulation/data", "colocate_info.csv", HEAD + row(VGG, 0.5, LSTM, 0.8)),
        ("simulation/analyzer", "single_data.csv", SOLO),
    ):
        (tmp_path / below).mkdir(parents=True)
        (tmp_path / below / name).write_text(text)
    assert len(import_lucid(tmp_path).pairs) == 2


def test_the_published_files() -> None:
    got = import_lucid(public("lucid"))
    assert len(got.jobs) == 51
    assert not any(pair.victim.split()[0] in DEFAULT_SPEED_MODELS for pair in got.pairs)
    assert any(pair.neighbour.split()[0] in DEFAULT_SPEED_MODELS for pair in got.pairs)
    assert len(got.pairs) == 1163
    found = counts(got)
    assert found["speeds of PPO and TD3"] == 228
    assert found["of 1198 speeds kept are above 1"] == 295
    ordinary = {"gpu_util_frac", "memory_util_frac", "memory_peak_bytes", "step_time_s"}
    given = {f.name for j in got.jobs for f in fields(j) if isinstance(v := getattr(j, f.name), float) and not isnan(v)}
    assert given == ordinary
