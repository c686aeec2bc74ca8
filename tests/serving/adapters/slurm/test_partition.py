"""What Match is asked: free seats once, our plain jobs in Slurm's order, everybody else left alone."""

from dataclasses import asdict, replace

from interfere.policy.rules.runtime import start_weights
from interfere.records import Device
from interfere.records.cluster import HIGHEST_PRIORITY
from interfere.serving.adapters.problem import MAX_PAIRS
from interfere.serving.adapters.slurm.jobs import GpuAddress, Held, Note
from interfere.serving.adapters.slurm.problem import OTHER_NODES, PartitionProblem, partition_problem, partitions
from tests.serving.adapters.slurm.facts import NOW, SETTINGS, node, pending, running


def view(*jobs: object, nodes: tuple[object, ...] = (node(),), now_s: float = NOW) -> PartitionProblem:
    return partition_problem("main", jobs, nodes, SETTINGS, now_s)  # type: ignore[arg-type]


def devices(seen: PartitionProblem) -> dict[str, tuple[str, ...]]:
    assert seen.snapshot is not None
    return {one.id: tuple(job.id for job in one.residents) for one in seen.snapshot.devices}


def placed(job_id: int, gpu: str, age_s: float = 1.0, tries: int = 1) -> object:
    note = Note(
        state="placed",
        to=GpuAddress("n0", gpu),
        tres="gres:shard:1",
        decision="d",
        round_s=int(NOW - age_s),
        tries=tries,
    )
    return pending(job_id, note=note, tres=f"gres:shard:{gpu}:1")


def test_residents_and_just_placed_jobs_hold_their_seats() -> None:
    seen = view(running(1, "g0"), placed(2, "g0"), running(3, "g1"), pending(4))
    assert devices(seen) == {"n0/g0": ("1", "2"), "n0/g1": ("3",)}
    assert [job.id for job in seen.candidates] == ["4"]
    assert seen.snapshot.pending[0].workload == "gemm"
    assert seen.snapshot.scope == "c/main"


def test_a_place_that_was_not_taken_is_asked_for_again_and_given_back_after_three_times() -> None:
    seen = view(placed(1, "g0", age_s=61.0), placed(2, "g0", age_s=61.0, tries=3))
    assert [job.id for job in seen.candidates] == ["1"]
    assert [job.id for job in seen.returned] == ["2"]
    assert seen.left_out == {"tried too often": 1}


def taking(job_id: int, gpu: str, ran_s: float, **given: object) -> object:
    """A running job that says that it takes 100 s."""
    return running(job_id, gpu, start_s=NOW - ran_s, comment="interfere:workload=gemm;remaining_s=100", **given)


def test_a_job_about_to_end_counts_as_ended_and_its_place_is_offered() -> None:
    full = (taking(1, "g0", 10.0), taking(2, "g0", 97.0), running(3, "g1"), running(4, "g1"))
    seen = view(*full, pending(5))
    assert devices(seen) == {"n0/g0": ("1",), "n0/g1": ("3", "4")}
    assert seen.ending == {"n0/g0": ("2",), "n0/g1": ()}
    # it takes a little longer than it said; much longer; it is just being cleaned up
    assert view(taking(1, "g0", 104.0), pending(5)).ending["n0/g0"] == ("1",)
    assert view(taking(1, "g0", 106.0), pending(5)).ending["n0/g0"] == ()
    completing = view(running(1, "g0", state="COMPLETING"), pending(5))
    assert devices(completing)["n0/g0"] == () == completing.ending["n0/g0"]
    # what it lost to the jobs beside it comes on top
    late = partition_problem("main", [taking(1, "g0", 97.0), pending(5)], [node()], SETTINGS, NOW, lambda _: 20.0)
    assert late.ending["n0/g0"] == ()
    off = replace(SETTINGS, prepare_s=0.0)
    assert partition_problem("main", [*full, pending(5)], [node()], off, NOW).snapshot is None


def test_a_prepared_place_is_not_offered_again_and_both_jobs_never_count_at_once() -> None:
    note = replace(placed(3, "g0").note, after=("2",))  # type: ignore[attr-defined]
    follower = pending(3, note=note, tres="gres:shard:g0:1")
    seen = view(taking(1, "g0", 10.0), taking(2, "g0", 150.0), follower, pending(4))
    assert devices(seen) == {"n0/g0": ("1", "3"), "n0/g1": ()}, "2 is followed, although it takes longer than it said"
    # the job before it has not ended in time: the place is lost, and both say so
    waited = pending(3, note=replace(note, round_s=int(NOW - 61)), tres="gres:shard:g0:1")
    seen = view(taking(1, "g0", 10.0), taking(2, "g0", 150.0), waited, pending(4))
    assert [job.id for job in seen.candidates] == ["3", "4"]
    assert devices(seen) == {"n0/g0": ("1", "2"), "n0/g1": ()}


def test_a_prepared_job_is_decided_again_where_a_gpu_is_idle_and_nobody_else_waits() -> None:
    note = replace(placed(3, "g0").note, after=("2",))  # type: ignore[attr-defined]
    follower = pending(3, note=note, tres="gres:shard:g0:1")
    first, second = taking(1, "g0", 10.0), taking(2, "g0", 97.0)
    seen = view(first, second, follower)
    assert [job.id for job in seen.candidates] == ["3"], "g1 is idle"
    assert devices(seen) == {"n0/g0": ("1",), "n0/g1": ()}, "it may follow 2 again"
    later = view(first, taking(2, "g0", 10.0), follower)
    assert devices(later) == {"n0/g0": ("1", "2"), "n0/g1": ()}, "2 goes on for long: its place is no longer offered"
    for kept in (
        view(first, second, follower, running(4, "g1")),
        view(first, second, follower, placed(4, "g1")),
        view(first, running(4, "g1"), pending(3, note=replace(note, after=("9",)), tres="gres:shard:g0:1")),
    ):
        assert kept.snapshot is None, "no GPU is idle, or nobody has to end before it starts"
    gang = pending(2, note=None, tres="gres:gpu:1", reason="Resources", special="several nodes")
    behind = replace(follower, note=replace(note, after=("1",)))  # type: ignore[arg-type]
    assert view(first, gang, behind).snapshot is None, "Slurm keeps the idle GPU for a job before it"


def test_a_job_that_slurm_would_not_start_before_a_gang_is_not_placed() -> None:
    gang = pending(2, note=None, tres="gres:gpu:1", reason="Resources", start_s=NOW + 300.0, special="several nodes")
    older, younger = pending(1), pending(3)
    short = pending(4, limit_s=240.0)
    seen = view(older, gang, younger, short, pending(5, limit_s=360.0))
    assert [job.id for job in seen.candidates] == ["1", "4"]
    assert [job.id for job in seen.behind] == ["3", "5"], "they are put off once more"
    assert seen.left_out == {"whole GPUs go first": 2}
    unknown = replace(gang, start_s=0.0)
    assert [job.id for job in view(older, unknown, younger, short).candidates] == ["1"]
    for other in (replace(gang, reason="Priority"), replace(gang, partition="b"), replace(gang, tres="")):
        assert len(view(older, other, younger, short).candidates) == 3


def test_a_long_job_is_kept_only_from_the_nodes_that_a_gang_will_take() -> None:
    """Slurm would backfill it on the other nodes: it may be placed there."""
    gang = pending(2, note=None, tres="gres:gpu:2", reason="Resources", special="several nodes")
    gang = replace(gang, start_s=NOW + 300.0, expected_nodes=("n0",))
    jobs = (pending(1), gang, pending(3), pending(4, limit_s=240.0))
    nodes = (node(), node("n1"))
    seen = view(*jobs, nodes=nodes)
    assert seen.snapshot is not None
    pools = {job.id: job.pools for job in seen.snapshot.pending}
    assert pools == {"1": (), "3": (OTHER_NODES,), "4": ()}, "1 is before the gang, 4 ends before it starts"
    places = {device.id: device.pool for device in seen.snapshot.devices}
    assert places == {"n0/g0": "", "n0/g1": "", "n1/g0": OTHER_NODES, "n1/g1": OTHER_NODES}
    assert not seen.left_out
    assert not seen.behind
    # where it takes all of them, and where Slurm does not say what it takes, the job waits as before
    for names in (("n0", "n1"), (), ("elsewhere",)):
        held = view(pending(1), replace(gang, expected_nodes=names), pending(3), nodes=nodes)
        assert [job.id for job in held.behind] == ["3"]
        assert held.snapshot is not None
        assert {device.pool for device in held.snapshot.devices} == {""}


def test_gpus_that_advice_must_not_share() -> None:
    whole = running(1, "g0", held=(Held("gpu", GpuAddress("n0", "g0"), 1),))
    silent = running(2, "g1", comment="")
    greedy = running(3, "g0", node="n1", held=(Held("shard", GpuAddress("n1", "g0"), 2),))
    seen = view(
        whole, silent, greedy, pending(4), nodes=(node(), node("n1"), node("n2", usable=False), node("n3", shards=1))
    )
    assert devices(seen) == {"n1/g1": ()}


def test_a_gang_takes_its_gpus_on_every_node() -> None:
    """squeue writes n[0-1] for the nodes of a job that runs on both."""
    held = tuple(Held("gpu", GpuAddress(name, "g0"), 1) for name in ("n0", "n1"))
    gang = running(1, "g0", node="n[0-1]", held=held)
    seen = view(gang, pending(2), nodes=(node(gpus=1), node("n1", gpus=2)))
    assert devices(seen) == {"n1/g1": ()}


def test_the_map_says_which_gpus_are_ours() -> None:
    rule = replace(SETTINGS.devices[0], nodes="n1", memory_gib=2.0)
    settings = replace(SETTINGS, devices=(rule,))
    seen = partition_problem("main", [pending(1)], [node(), node("n1")], settings, NOW)
    assert seen.snapshot is not None
    found, expected = (
        asdict(device)
        for device in (
            seen.snapshot.devices[0],
            Device(id="n1/g0", node="n1", type="cpu-core", mode="timeslice", memory_bytes=2.0 * 2**30, seats=2),
        )
    )
    assert str(found) == str(expected)  # NaN equals no NaN


def test_the_first_of_the_queue_compete_and_nobody_when_all_is_full() -> None:
    full = [running(k, gpu) for k, gpu in ((1, "g0"), (2, "g0"), (3, "g1"))]
    queue = [pending(k) for k in range(10, 20)]
    seen = view(*full, *reversed(queue))
    assert [job.id for job in seen.candidates] == ["10", "11", "12"]  # three for one seat, highest priority first
    assert len(seen.behind) == 7
    seen = view(*full, running(4, "g1"), *queue)
    assert seen.snapshot is None
    assert len(seen.behind) == 10


def test_jobs_that_say_how_long_they_take_compete_wherever_they_stand() -> None:
    full = [running(1, "g0"), running(2, "g0"), running(3, "g1")]
    queue = [pending(k, comment=f"interfere:workload=a{';remaining_s=60' if k % 2 else ''}") for k in range(10, 20)]
    seen = view(*full, *queue)
    assert [job.id for job in seen.candidates] == ["10", "11", "12", "13", "15", "17", "19"]
    assert [job.id for job in seen.behind] == ["14", "16", "18"]
    assert [job.id for job in seen.snapshot.pending] == [job.id for job in seen.candidates]
    assert view(*full, running(4, "g1"), *queue).candidates == (), "nothing is free"


def test_who_waited_long_weighs_more() -> None:
    seen = view(pending(1, submit_s=NOW - 299.0), pending(2, submit_s=NOW - 901.0), pending(3, submit_s=NOW - 1500.0))
    assert [job.elapsed_s for job in seen.snapshot.pending] == [299.0, 901.0, 1500.0]
    assert {job.weight for job in seen.snapshot.pending} == {1.0}
    weights = start_weights(seen.snapshot.pending, NOW, SETTINGS.patience_s)
    assert weights.tolist() == [1.0, 2.0, 4.0]


def test_whole_units_of_priority_are_levels() -> None:
    jobs = [pending(k, priority=priority) for k, priority in ((1, 999), (2, 1000), (3, 2500), (4, 4_294_901_759))]
    seen = partition_problem("main", jobs, [node()], replace(SETTINGS, priority_unit=1000.0, lookahead=9), NOW)
    levels = {job.id: job.priority for job in seen.snapshot.pending}
    assert levels == {"1": 0, "2": 1, "3": 2, "4": HIGHEST_PRIORITY}
    assert {job.priority for job in view(*jobs).snapshot.pending} == {0}


def test_jobs_that_are_not_for_advice_are_counted() -> None:
    others = [
        pending(1, special="array"),
        pending(2, tres="gres:shard:2"),
        pending(3, submit_s=NOW - 3600.0),
        pending(4, comment="interfere:workload="),
        pending(5, comment="interfere:workload=a;memory_gib=much"),
        pending(6, note=None),
        pending(7, partition="other"),
        pending(8, note=Note(state="freed")),
    ]
    seen = view(*others)
    assert seen.candidates == ()
    assert seen.left_out == {"array": 1, "size": 1, "waited long enough": 1, "comment": 2, "tried too often": 1}
    assert partitions(others, SETTINGS) == ("main", "other")


def test_what_a_job_says_of_itself_reaches_the_server() -> None:
    seen = view(pending(1, comment="interfere:workload=a;memory_gib=3;max_slowdown=1.5"))
    (job,) = seen.snapshot.pending
    assert (job.workload, job.memory_peak_bytes, job.max_slowdown) == ("a", 3.0 * 2**30, 1.5)


def test_a_question_never_passes_the_servers_limit() -> None:
    nodes = tuple(node(f"n{k}", gpus=4) for k in range(900))
    residents = [running(10_000 + k, f"g{k % 4}", node=f"n{k // 4}") for k in range(3_600)]
    seen = view(*residents, *(pending(k) for k in range(2_000)), nodes=nodes)
    n = len(seen.candidates)
    assert 100 < n < 2_000
    assert n * (n - 1) / 2 + n * 3_600 + n * n <= MAX_PAIRS * 10 / 9
