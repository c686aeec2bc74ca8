"""A recorded line has what is needed to compare it with a later one."""

import json
from pathlib import Path

from tests.bench.history import median_s, record, reference_s


def test_every_record_is_one_line_with_commit_and_processor(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    record("a", {"p50_s": 0.12345678}, history=history)
    record("b", {"p50_s": 2.0}, history=history)
    first, second = map(json.loads, history.read_text().splitlines())
    assert (first["bench"], first["figures"], second["bench"]) == ("a", {"p50_s": 0.123457}, "b")
    assert first["cpu"]
    assert {"at", "commit", "python"} <= set(first)


def test_the_first_call_is_not_counted() -> None:
    calls: list[int] = []
    assert median_s(lambda: calls.append(1), 3) >= 0
    assert len(calls) == 4
    assert reference_s() > 0
