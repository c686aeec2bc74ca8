"""Plain JSON: documents read back as the records they came from, and everything wrong has its path."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from interfere.errors import InvalidInputError
from interfere.records import ActionKind, PairQuery, Plan, Snapshot
from interfere.records.documents import from_document, to_document
from interfere.strict_json import json_value
from interfere.wire.documents import decision_document, read_json, read_observations
from tests.wire import strategies as some
from tests.wire.test_converters import same

read_snapshot = partial(from_document, Snapshot)
read_pair_query = partial(from_document, PairQuery)


@given(some.snapshots)
@settings(max_examples=30, deadline=None)
def test_a_snapshot_reads_back(snapshot: Snapshot) -> None:
    assert same(read_snapshot(json.loads(json.dumps(json_value(to_document(snapshot))))), snapshot)


@given(some.plans)
@settings(max_examples=20, deadline=None)
def test_a_plan_is_strict_json(plan: Plan) -> None:
    document = json.loads(json.dumps(json_value(decision_document(plan)), allow_nan=False))
    assert [action["job_id"] for action in document["actions"]] == [action.job_id for action in plan.actions]


def test_the_smallest_snapshot() -> None:
    snapshot = read_snapshot(
        {
            "pending": [{"id": "a", "workload": "w"}],
            "devices": [{"id": "d", "type": "t"}],
            "limits": {"allowed": ["wait", "start_alone"], "max_devices": 1},
        }
    )
    assert snapshot.limits.allowed == {ActionKind.WAIT, ActionKind.START_ALONE}
    assert snapshot.limits.max_devices == 1


def test_jobs_of_a_query_may_be_names_ids_or_facts() -> None:
    facts = {
        "workload": "w",
        "device_type": "t",
        "step_time_s": 1,
        "busy_s": [1, 2],
        "idle_s": [0, 0.5],
        "kernels": [{"name": "k", "mean_s": 0.1, "grid": [1, 2]}],
    }
    query = read_pair_query({"jobs": ["a", {"profile_id": "p"}, {"profile": facts}], "pairs": [[0, 2]]})
    assert [ref.name for ref in query.jobs] == ["a", "p", "w"]
    assert query.jobs[2].profile is not None
    assert query.jobs[2].profile.kernels[0].grid == (1, 2)
    assert query.pairs == ((0, 2),)


WINDOW = {
    "observation_id": "1",
    "job_id": "j",
    "workload": "w",
    "device_type": "t",
    "start_s": 0,
    "end_s": 9,
    "steps": 5,
}


def test_windows_come_as_a_list_or_under_their_name() -> None:
    assert read_observations([WINDOW | {"company": ["x"]}]) == read_observations(
        {"observations": [WINDOW | {"company": ["x"]}]}
    )


@pytest.mark.parametrize(
    ("read", "document", "field"),
    [
        (read_snapshot, [], ""),
        (read_snapshot, {"pending": []}, "devices"),
        (read_snapshot, {"pending": 3, "devices": []}, "pending"),
        (read_snapshot, {"pending": [], "devices": [], "limit": {}}, "limit"),
        (read_snapshot, {"pending": [{"id": "a", "worklod": "w"}], "devices": []}, "pending[0].worklod"),
        (read_snapshot, {"pending": [{"id": "a", "workload": "w", "weight": "2"}], "devices": []}, "pending[0].weight"),
        (read_snapshot, {"pending": [{"id": "a", "workload": "w", "weight": -2}], "devices": []}, "pending[0].weight"),
        (read_snapshot, {"pending": [], "devices": [{"id": 4, "type": "t"}]}, "devices[0].id"),
        (read_snapshot, {"pending": [], "devices": [], "limits": {"allowed": ["fly"]}}, "limits.allowed[0]"),
        (read_snapshot, {"pending": [], "devices": [], "limits": {"max_devices": 1.5}}, "limits.max_devices"),
        (read_pair_query, {"jobs": ["a"], "pairs": [[0]]}, "pairs[0]"),
        (read_pair_query, {"jobs": ["a"], "pairs": [[0, 1]]}, "pairs[0].neighbour"),
        (read_pair_query, {"jobs": [{"workload": "a", "profile_id": "b"}]}, "jobs[0].workload"),
        (read_pair_query, {"jobs": [{"profile": {"workload": "a"}}]}, "jobs[0].profile.device_type"),
        (read_observations, [WINDOW, WINDOW | {"end_s": 0}], "observations[1].end_s"),
        (read_observations, {"observations": [WINDOW | {"company": "x"}]}, "observations[0].company"),
        (read_observations, {"observation": []}, "observations"),
    ],
)
def test_everything_wrong_has_its_path(read: Any, document: Any, field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read(document)
    assert field in [violation.field for violation in caught.value.violations]


@pytest.mark.parametrize("content", [None, b"{", b"\xff\xfe"])
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "f").write_bytes(content)
    with pytest.raises(InvalidInputError, match="JSON"):
        read_json(str(tmp_path / "f"))
