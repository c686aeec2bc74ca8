"""Every built-in runs, waits as it says, and can be found; so can a user's own."""

import subprocess
import sys
from itertools import combinations_with_replacement

import pytest

from interfere.errors import InvalidInputError, NotFoundError
from interfere.profiling.workloads import (
    BUILT_IN,
    EIGHT,
    TWELVE,
    campaign_pairs,
    check_names,
    expand_names,
    find_workload,
    needs_torch,
    ranks_of,
)
from interfere.profiling.workloads.workload import OpenLoop
from tests.cpu_time import cpu_s
from tests.profiling import sample_workloads

SERVICES = [name for name, workload in BUILT_IN.items() if workload.requests_per_s > 0]
GANGS = [name for name, workload in BUILT_IN.items() if workload.gang_of]
CLOSED = [name for name in BUILT_IN if name not in (*SERVICES, *GANGS)]


@pytest.mark.parametrize("name", CLOSED)
def test_a_built_in_runs_and_waits_alike_in_every_step(name: str) -> None:
    workload = find_workload(name)
    assert workload.name == name
    step = workload.build()
    waits: list[list[float]] = []
    for _ in range(3):
        waits.append([])
        step(waits[-1].append)
    assert waits[0] == waits[1] == waits[2], "steps must be alike, or windows are not comparable"
    assert all(0 < wait <= 0.008 for wait in waits[0])
    assert ("always busy" in workload.description) == (not waits[0])
    assert cpu_s(lambda: step(waits[-1].append)) < 20.0 * cpu_s(lambda: sum(range(5_000_000))), "a step is short"


def test_half_of_the_built_ins_wait() -> None:
    waiting = [name for name in CLOSED if "always busy" not in BUILT_IN[name].description]
    assert len(CLOSED) >= 12
    assert len(waiting) >= len(CLOSED) / 2


@pytest.mark.parametrize("name", [name for name in SERVICES if BUILT_IN[name].beside_all])
def test_a_service_answers_as_many_requests_in_every_step(name: str) -> None:
    step = find_workload(name).build()
    assert isinstance(step, OpenLoop)
    for _ in range(2):
        step(lambda seconds: None)  # an impatient world: every wait is over at once
    answered = step.take_answered()
    assert len(answered) == 2 * OpenLoop.requests_a_step(BUILT_IN[name].requests_per_s)
    assert step.take_answered() == []
    arrivals = [arrival_s for arrival_s, *_ in answered]
    assert arrivals == sorted(arrivals)
    generates = name.startswith("gpt-chat")
    for each in answered:
        assert each.tokens == (4 if generates else 0)
        assert not generates or each.first_token_s < each.answer_s  # no wait is kept, so arrivals may lie in the future


def test_eight_services_at_three_rates_and_gangs_of_two() -> None:
    rates: dict[str, list[float]] = {}
    for name in SERVICES:
        service, _, rate = name.partition("@")
        assert BUILT_IN[name].requests_per_s == float(rate)
        rates.setdefault(service, []).append(float(rate))
    assert len(rates) >= 8
    assert all(len(of_service) == 3 and of_service == sorted(of_service) for of_service in rates.values())
    assert {BUILT_IN[name].gang_of for name in GANGS} < set(CLOSED)
    assert {ranks_of(name) for name in GANGS} == {2}
    assert {ranks_of(name) for name in (*CLOSED, *SERVICES, "my.module:job")} == {1}


def test_a_campaign_measures_all_middle_rates_beside_all_and_gangs_beside_gangs() -> None:
    pairs = set(campaign_pairs(tuple(BUILT_IN)))
    everywhere = [name for name, workload in BUILT_IN.items() if workload.beside_all]
    assert len(everywhere) >= 24
    assert pairs >= set(combinations_with_replacement(everywhere, 2))
    assert pairs >= set(combinations_with_replacement(GANGS, 2))
    for name in set(BUILT_IN) - set(everywhere):
        beside = {other for pair in pairs if name in pair for other in pair} - {name}
        assert beside == {*EIGHT, *(set(GANGS) - {name} if name in GANGS else ())}
    assert campaign_pairs(EIGHT) == tuple(combinations_with_replacement(EIGHT, 2))
    assert campaign_pairs(("my.module:job",)) == (("my.module:job", "my.module:job"),)


def test_declared_work_is_finite_and_torch_work_is_left_to_the_counter() -> None:
    for workload in BUILT_IN.values():
        declared = workload.operator != ""
        assert declared != (workload.framework == "torch")


def test_names_and_sets() -> None:
    assert expand_names("all") == tuple(BUILT_IN)
    assert expand_names(" gemm , stream") == ("gemm", "stream")
    assert set(EIGHT) < set(TWELVE) < set(BUILT_IN)
    assert (len(EIGHT), len(TWELVE)) == (8, 12)
    with pytest.raises(InvalidInputError, match="no workload"):
        expand_names(" , ")


def test_unknown_and_repeated_names_are_refused() -> None:
    with pytest.raises(NotFoundError, match="did you mean gemm"):
        check_names(("gemn",))
    with pytest.raises(NotFoundError, match="one of resnet-train"):
        check_names(("nobody-s-job",))
    with pytest.raises(InvalidInputError, match="twice: gemm"):
        check_names(("gemm", "gemm"))
    check_names(("gemm", "my.module:job"))


def test_a_users_own() -> None:
    assert find_workload("tests.profiling.sample_workloads:BUSY") is sample_workloads.BUSY
    assert find_workload("tests.profiling.sample_workloads:waiting").name == "waiting"
    assert not needs_torch("tests.profiling.sample_workloads:waiting")
    with pytest.raises(InvalidInputError, match="did not return a Workload: str"):
        find_workload("tests.profiling.sample_workloads:nothing")


def test_looking_up_imports_nothing_heavy() -> None:
    code = "import sys, interfere.profiling.workloads as w; w.expand_names('all'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
