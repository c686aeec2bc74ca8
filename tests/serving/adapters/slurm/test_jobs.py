"""Both generations of Slurm's JSON are read into the same records; whatever is no plain job is left to Slurm."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interfere.errors import InvalidInputError
from interfere.serving.adapters.slurm.jobs import (
    GpuAddress,
    Held,
    Note,
    SlurmJob,
    node_names,
    read_expected_nodes,
    read_jobs,
    read_nodes,
)
from tests.serving.adapters.slurm.facts import NOW, job_row, node_row, pending, sinfo, squeue


def one(**given: Any) -> SlurmJob:
    (job,) = read_jobs(squeue([job_row(7, **given)]))
    return job


def test_old_and_new_json_say_the_same() -> None:
    def wrapped(number: int) -> dict[str, object]:
        return {"set": True, "infinite": False, "number": number}

    new = one(
        job_state=["PENDING"],
        priority=wrapped(1000),
        submit_time=wrapped(int(NOW)),
        array_job_id=wrapped(0),
        eligible_time=wrapped(int(NOW) + 20),
        start_time={"set": False, "infinite": False, "number": 5},
        end_time={"set": True, "infinite": True, "number": 0},
        het_job_id=wrapped(0),
        node_count=wrapped(1),
    )
    assert new == one()
    assert new.special == ""
    assert (new.shards, new.typed, new.workload, new.eligible_s) == (1, False, "gemm", NOW + 20)
    old_node, new_node = node_row("n0", state="mixed"), node_row("n0", state=["MIXED"])
    assert read_nodes(sinfo([old_node])) == read_nodes(sinfo([new_node]))


def test_a_running_job_says_which_gpu_it_holds() -> None:
    job = one(job_state="RUNNING", nodes="n1", gres_detail=["shard:g0:0(IDX:),shard:g1:1(IDX:1)"])
    assert job.held == (Held("shard", GpuAddress("n1", "g1"), 1),)
    assert one(job_state=["RUNNING", "COMPLETING"], nodes="n1").state == "COMPLETING"


def test_a_job_on_several_nodes_holds_a_gpu_on_each() -> None:
    gang = one(job_state="RUNNING", nodes="n[0-1]", gres_detail=["gpu:g0:1(IDX:0)", "gpu:g1:1(IDX:1)"])
    assert gang.places == (GpuAddress("n0", "g0"), GpuAddress("n1", "g1"))
    assert one(job_state="RUNNING", nodes="n0,n7", gres_detail=["shard:g0:1", "shard:g0:1"]).places == (
        GpuAddress("n0", "g0"),
        GpuAddress("n7", "g0"),
    )


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("n1", ("n1",)),
        ("n[0-1,3],m07", ("n0", "n1", "n3", "m07")),
        ("a[08-10]-ib", ("a08-ib", "a09-ib", "a10-ib")),
        ("r[0-1]c[1-2]", ("r0c1", "r0c2", "r1c1", "r1c2")),
    ],
)
def test_a_list_of_nodes_is_read_as_slurm_writes_it(text: str, names: tuple[str, ...]) -> None:
    assert node_names(text) == names


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"array_job_id": 5}, "array"),
        ({"het_job_id": 5}, "heterogeneous"),
        ({"node_count": 2}, "several nodes"),
        ({"required_nodes": "n1"}, "own choice of nodes"),
        ({"excluded_nodes": "n1"}, "own choice of nodes"),
        ({"features": "a100"}, "features"),
        ({"resv_name": "maintenance"}, "reservation"),
        ({"dependency": "afterok:3"}, "dependency"),
        ({"partition": "a,b"}, "several partitions"),
        ({"state_reason": "JobHeldUser"}, "held"),
    ],
)
def test_what_is_no_plain_job_is_left_to_slurm(given: dict[str, Any], why: str) -> None:
    assert one(**given).special == why


def test_a_node_that_we_chose_is_no_choice_of_the_user() -> None:
    note = Note(state="placed", to=GpuAddress("n1", "g0"), tres="gres:shard:1", decision="d", round_s=3, tries=1)
    assert one(required_nodes="n1", admin_comment=str(note)).special == ""
    assert one(required_nodes="n1", admin_comment=str(note), dependency="afterany:3").special == "dependency"
    note = replace(note, after=("3",))
    assert one(required_nodes="n1", admin_comment=str(note), dependency="afterany:3").special == ""


def test_the_nodes_that_slurm_keeps_for_a_job_come_from_new_json_or_old_tables() -> None:
    (job,) = read_jobs(squeue([job_row(7, scheduled_nodes="n[0-1]")]))
    assert job.expected_nodes == ("n0", "n1")
    table = "7 n[0-1],m2\n8 (null)\n9 \n10_[1-3] n5\nslurm_load_jobs error: none\n"
    assert read_expected_nodes(table) == {"7": ("n0", "n1", "m2")}


def test_nodes_that_take_no_job_and_gpus_without_an_address() -> None:
    for broken in ({"state": "down"}, {"state_flags": ["DRAIN"]}, {"state": ["IDLE", "DRAIN"]}, {"state": []}):
        (found,) = read_nodes(sinfo([node_row("n0", **broken)]))
        assert not found.usable
    (found,) = read_nodes(sinfo([node_row("n0", gres="gpu:a100:2(S:0-1),gpu:g2:1(S:1),shard:g2:4(S:1)")]))
    assert [(str(gpu.address), gpu.index, gpu.shards) for gpu in found.gpus] == [("n0/g2", 2, 4)]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"jobs": 3}', '{"jobs": ["x"]}', '{"errors": [{"description": "no"}]}']
)
def test_what_is_no_answer_is_one_clear_error(text: str) -> None:
    with pytest.raises(InvalidInputError, match="squeue --json"):
        read_jobs(text)


@given(
    state=st.sampled_from(["deferred", "clearing", "placed", "freed"]),
    place=st.none() | st.tuples(st.text("abz09-", min_size=1), st.sampled_from(["g0", "g1", "a100-3"])),
    tres=st.sampled_from(["", "gres:shard:1", "gres:shard:g1:2"]),
    decision=st.text("0123456789abcdef", max_size=16),
    numbers=st.tuples(st.integers(0, 2**40), st.integers(0, 9)),
    after=st.lists(st.integers(1, 10**9).map(str), max_size=3),
)
def test_a_note_is_read_as_it_was_written(
    state: str, place: tuple[str, str] | None, tres: str, decision: str, numbers: tuple[int, int], after: list[str]
) -> None:
    note = Note(
        state=state,
        to=GpuAddress(*place) if place else None,
        tres=tres,
        decision=decision,
        round_s=numbers[0],
        tries=numbers[1],
        after=tuple(after),
    )
    assert Note.parse(str(note)) == note


@given(st.text())
def test_any_other_admin_comment_is_not_ours_or_harmless(text: str) -> None:
    assert Note.parse(text) is None or text.startswith("interfere:")
    Note.parse("interfere:" + text)


@pytest.mark.parametrize(
    ("tres", "shards", "typed"),
    [
        ("gres:shard", 1, False),
        ("gres:shard:2", 2, False),
        ("gres:shard:g1", 1, True),
        ("gres:shard:g1:3", 3, True),
        ("gres/shard:1", 1, False),
        ("gres:gpu:1", 0, False),
        ("gres:shard:1,gres:gpu:1", 0, False),
        ("", 0, False),
    ],
)
def test_what_a_job_asks_for(tres: str, shards: int, typed: bool) -> None:
    job = pending(1, tres=tres)
    assert (job.shards, job.typed) == (shards, typed)


@pytest.mark.parametrize(
    ("comment", "workload", "cap"),
    [
        ("interfere:workload=a;max_slowdown=1.5", "a", "1.5"),
        ("ticket 12 interfere:workload=b and more", "b", ""),
        ("interfere:", "", ""),
        ("interfere: workload=a", "a", ""),
        ("workload=a", "", ""),
        ("interfere:max_slowdown=2", "", "2"),
    ],
)
def test_what_a_comment_says(comment: str, workload: str, cap: str) -> None:
    job = pending(1, comment=comment)
    assert (job.workload, job.comment_value("max_slowdown")) == (workload, cap)


def test_with_one_user_only_notes_are_believed_in_that_users_comments_alone() -> None:
    placed = Note(state="placed", to=GpuAddress("n1", "g0"), tries=1)
    rows = [
        job_row(1, comment="interfere:workload=a"),
        job_row(2, comment=f"interfere:workload=a|{placed}"),
        job_row(3, comment=f"interfere:workload=a|{placed}", user_id=7),
        job_row(4, comment="interfere:workload=a b"),
        job_row(5, comment="interfere:workload=a", admin_comment=""),
    ]
    assert [job.note for job in read_jobs(squeue(rows), 1000)] == [Note(), placed, None, None, None]
    assert [job.note for job in read_jobs(squeue(rows))] == [Note(), Note(), Note(), Note(), None]
