"""Records of schedulers: which fields go together, what each is called, and what it is compared with."""

from dataclasses import replace

import pytest

from interfere.errors import InvalidInputError
from interfere.sim.schedulers.queue import Backfill
from interfere.sim.schedulers.records import (
    DEADLINE_DEFAULT,
    DEFAULT,
    PRESETS,
    Queue,
    SchedulerRecord,
    Sharing,
    preset,
)

SEATED = SchedulerRecord(queue=Queue.SJF, backfill=Backfill.EASY, sharing=Sharing.MATCHING, one_gpu=True, seats=4)


@pytest.mark.parametrize("record", PRESETS.values(), ids=lambda record: record.label)
def test_what_it_is_compared_with_differs_in_sharing_alone(record: SchedulerRecord) -> None:
    unshared = record.unshared
    assert (unshared is not None) is bool(record.sharing)
    if unshared is None:
        return
    assert unshared.unshared is None
    assert (unshared.queue, unshared.backfill, unshared.drop) == (record.queue, record.backfill, record.drop)
    assert PRESETS[unshared.label] == unshared


def test_every_record_has_a_name_of_its_own() -> None:
    assert len({*PRESETS.values()}) == len(PRESETS) == 139
    assert all(preset(label) == record for label, record in PRESETS.items())
    assert {*DEFAULT, *DEADLINE_DEFAULT} <= {*PRESETS.values()}


def test_seats_and_related_records() -> None:
    assert SEATED.label == "sjf-easy-matching-one-gpu-4-seats"
    assert SEATED.unshared == PRESETS["sjf-easy"]
    assert SEATED.two_seats == PRESETS["sjf-easy-matching-one-gpu"]
    three = PRESETS["policy"].with_seats(3)
    assert three is not None
    assert three.unshared == PRESETS["policy-alone"]
    assert three.one_gpu_only == replace(PRESETS["policy-one-gpu"], seats=3)
    assert three.with_seats(2) == PRESETS["policy"]
    assert PRESETS["srtf-first-fit-matching"].with_seats(3) is None
    assert PRESETS["fifo"].two_seats == PRESETS["fifo"]
    assert PRESETS["fifo-rematch-matching"].one_gpu_only is None


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("sjf-easy-greedy", {"seats": 3}, "shares in pairs only"),
        ("srtf-matching", {"seats": 3}, "shares in pairs only"),
        ("edf-drop-matching", {"seats": 3}, "shares in pairs only"),
        ("policy-deadlines", {"seats": 3}, "shares in pairs only"),
        ("policy-alone", {"seats": 3}, "shares in pairs only"),
        ("policy", {"seats": 49}, "2 to 48 seats"),
        ("fifo", {"one_gpu": True}, "one_gpu needs sharing"),
        ("srtf", {"drop": True}, "drop needs an order that stops no job"),
        ("srtf", {"backfill": Backfill.EASY}, "needs no reservations"),
        ("slots", {"backfill": Backfill.EASY}, "only queues of an order have backfill"),
        ("policy", {"sharing": Sharing.GREEDY}, "the server shares by matching"),
        ("edf-first-fit-greedy", {"rematch": True}, "rematch needs"),
    ],
)
def test_fields_that_do_not_go_together_are_refused(name: str, changes: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidInputError, match="no such scheduler") as raised:
        replace(PRESETS[name], **changes)  # type: ignore[arg-type]
    assert reason in raised.value.remedy


@pytest.mark.parametrize("name", ["", "lifo", "fifo-greedy-backfill", "sjf-backfil", "policy-greedy", "srtf-drop"])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match="no such policy") as raised:
        preset(name)
    assert "fifo, sjf" in str(raised.value)


def test_a_name_that_is_nearly_one_is_answered_with_it() -> None:
    with pytest.raises(InvalidInputError) as raised:
        preset("fifo+easy+greedy")
    assert raised.value.remedy.startswith("perhaps fifo-easy-greedy")
