"""Reads the log: its newest entries up to a point, and what was known there."""

from interfere.errors import NotFoundError
from interfere.serving.learning.learned_state import LearnedState, largest_corrections, online_summary
from interfere.serving.learning.log_fold import LogFold, is_rolled_back
from interfere.store.protocols import ObservationRepository
from interfere.wire.messages import LogEntry, ObservationLog


def read_log(
    book: ObservationRepository, fold: LogFold, learned: LearnedState, at: int | None, limit: int
) -> ObservationLog:
    """The newest entries up to a point (None: the end), and what was known there.

    Of an earlier point than that of `learned`, the state is folded. Raises NotFoundError past the end.
    """
    if at is not None and at > learned.last_sequence:
        raise NotFoundError("no such entry", value=at, remedy=f"the log ends at {learned.last_sequence}")
    rollbacks = book.rollbacks(up_to=at)
    entries = tuple(
        LogEntry(
            sequence=stored.sequence,
            observation=stored.observation,
            result=stored.result,
            reason=stored.reason,
            received_s=stored.received_s,
            rolled_back=is_rolled_back(stored.sequence, stored.observation, rollbacks),
        )
        for stored in book.newest(limit or 20, up_to=at)
    )
    model, online = learned.model, learned.summary()
    if at is not None and at < learned.last_sequence:
        model, _ = fold.model_after(at)
        online = online_summary(model, book.counts(up_to=at))
    return ObservationLog(entries=entries, online=online, corrections=largest_corrections(model))
