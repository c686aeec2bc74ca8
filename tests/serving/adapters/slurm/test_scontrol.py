"""Lines for scontrol: what they say, in which order, and how few they are."""

from interfere.serving.adapters.slurm.jobs import GpuAddress, Note
from interfere.serving.adapters.slurm.scontrol import due, hand_back, place, renew, repair
from tests.serving.adapters.slurm.facts import NOW, pending

TO = GpuAddress("n1", "g0")


def test_an_untyped_request_is_cleared_far_from_the_scheduler_then_written_anew() -> None:
    edit = place(pending(7), TO, "dec", NOW)
    clear, write = edit.lines
    assert clear.startswith(
        "update JobId=7 TresPerNode= StartTime=now+365days AdminComment=interfere:clearing;to=n1/g0;"
    )
    assert write == (
        "update JobId=7 TresPerNode=gres:shard:g0:1 ReqNodeList=n1 StartTime=now "
        f"AdminComment=interfere:placed;to=n1/g0;tres=gres:shard:1;decision=dec;round={NOW:.0f};tries=1"
    )


def test_a_typed_one_is_moved_in_one_update_and_remembers_what_it_was() -> None:
    job = pending(
        7, tres="gres:shard:g1:1", note=Note(state="placed", to=GpuAddress("n0", "g1"), tres="gres:shard:1", tries=1)
    )
    (line,) = place(job, TO, "dec", NOW).lines
    assert "TresPerNode=gres:shard:g0:1 " in line
    assert "tres=gres:shard:1" in line
    assert "tries=2" in line


def test_waiting_jobs_are_renewed_a_hundred_at_a_time_and_only_when_due() -> None:
    jobs = [pending(k, eligible_s=NOW + k / 10) for k in range(250)]
    late = due(jobs, NOW, 20.0)
    assert [job.id for job in late] == [str(k) for k in range(100)]
    edits = renew(jobs, 20.0)
    assert [len(edit.job_ids) for edit in edits] == [100, 100, 50]
    assert edits[2].lines == (f"update JobId={','.join(str(k) for k in range(200, 250))} StartTime=now+20",)


def test_a_job_caught_between_two_updates_gets_its_request_back() -> None:
    caught = pending(7, tres="", note=Note(state="clearing", to=TO, tres="gres:shard:2"))
    (line,) = repair(caught, 20.0).lines
    assert (
        line == "update JobId=7 TresPerNode=gres:shard:2 ReqNodeList= StartTime=now+20 AdminComment=interfere:deferred"
    )
    (line,) = hand_back(caught).lines
    assert line.startswith(
        "update JobId=7 TresPerNode=gres:shard:2 ReqNodeList= StartTime=now AdminComment=interfere:freed"
    )


def test_a_placed_job_handed_back_keeps_only_the_type() -> None:
    (line,) = hand_back(pending(7, tres="gres:shard:g0:1", note=Note(state="placed", to=TO, tries=3))).lines
    assert line == "update JobId=7 ReqNodeList= StartTime=now AdminComment=interfere:freed;tries=3"


def test_nothing_that_a_user_or_server_wrote_begins_another_word_or_line() -> None:
    for tres in ("gres:shard:x\nupdate JobId=1 Priority=9:1", "gres:shard:a b:1", "gres:shard:1\n", "gres:shard:ä:1"):
        assert pending(7, tres=tres).shards == 0  # such a job is left to Slurm
    edit = place(pending(7), TO, "dec\nshutdown", NOW)
    assert edit.note is not None
    assert edit.note.decision == ""
    assert Note.parse("interfere:clearing;tres=gres:shard:1 Priority=9") is None
    assert all(line.count("\n") == 0 for line in edit.lines)


def test_a_user_without_rights_keeps_the_note_in_the_comment() -> None:
    job = pending(7, note_in="Comment", comment="interfere:workload=a|interfere:deferred")
    assert job.workload == "a"
    clear, write = place(job, TO, "dec", NOW).lines
    for line, state in ((clear, "clearing"), (write, "placed")):
        assert f" Comment=interfere:workload=a|interfere:{state};to=n1/g0;" in line
        assert "AdminComment" not in line


def test_a_prepared_job_waits_for_the_end_of_others_until_it_is_placed_anew_or_handed_back() -> None:
    edit = place(pending(1), GpuAddress("n0", "g1"), "d", NOW, after=("7", "8"))
    assert edit.kind == "prepare"
    assert edit.note is not None
    assert (edit.note.after, edit.note.tries) == (("7", "8"), 0)
    assert "Dependency" not in edit.lines[0], "it is far from the scheduler already"
    assert " Dependency=afterany:7:8 StartTime=now " in edit.lines[1]
    assert Note.parse(str(edit.note)) == edit.note
    prepared = pending(1, note=edit.note, tres="gres:shard:g1:1")
    again = place(prepared, GpuAddress("n0", "g0"), "d", NOW)
    assert again.note is not None
    assert (again.note.after, again.note.tries) == ((), 1)
    for lines in (again.lines, hand_back(prepared).lines, repair(prepared, 20.0).lines):
        assert " Dependency= StartTime=" in lines[-1]
