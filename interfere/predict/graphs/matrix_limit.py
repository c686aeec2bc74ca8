"""The largest matrix of a model that predicts pair by pair; a model that factorises over jobs has no limit.

The time of a matrix is proportional to the number of its distinct ordered pairs: a job that occurs several times, or
both as victim and as neighbour, is counted once. The limit is the number of pairs that one core predicts in the time
stated in the manifest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from interfere.errors import LimitError
from interfere.records import JobProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixLimit:
    """The limit that a manifest sets on the matrices of a model that does not factorise over jobs."""

    pairs: int  # distinct ordered pairs of one matrix
    seconds: float  # approximate CPU time of one core for a matrix of `pairs` pairs


# Of folders that state none, because another model answered their large matrices: trees take 15 µs a pair.
UNSTATED = MatrixLimit(pairs=100_000, seconds=5.0)


def distinct_pairs(victims: int, neighbours: int, common: int) -> int:
    """Return the number of ordered pairs of a matrix in both directions.

    `victims` and `neighbours` are numbers of distinct jobs; `common` jobs occur on both sides.
    """
    return 2 * victims * neighbours - common * common


def check_matrix_size(
    victims: Sequence[JobProfile], neighbours: Sequence[JobProfile], limit: MatrixLimit | None, model: str
) -> None:
    """Raise LimitError for a matrix that holds more distinct ordered pairs than `limit`. Profiles are told apart by
    identity, as caches do."""
    if limit is None or 2 * len(victims) * len(neighbours) <= limit.pairs:
        return
    rows, columns = {id(job) for job in victims}, {id(job) for job in neighbours}
    require_within(distinct_pairs(len(rows), len(columns), len(rows & columns)), limit, model)


def require_within(pairs: int, limit: MatrixLimit | None, model: str) -> None:
    """Raise LimitError for more distinct ordered pairs than `limit` allows; None means no limit."""
    if limit is not None and pairs > limit.pairs:
        raise LimitError(
            f"too large a matrix for the model {model}, which predicts pair by pair",
            value=f"{pairs:,} distinct ordered pairs, {limit.pairs:,} take it {limit.seconds:g} s",
            remedy="ask about fewer jobs that differ, or serve a model without this limit: "
            "interfere train --champion gp (or ensemble, mlp)",
        )
