"""Values of the fields of records."""

from hypothesis import strategies as st

from interfere.records import NAN
from interfere.sharing_modes import SharingMode

names = st.text("abcdefgh-µ🚀 0123", min_size=1, max_size=12).filter(str.strip)

words = st.text("abc-×≥", max_size=12)

counts = st.integers(0, 2**31)

modes = st.sampled_from(SharingMode)


def numbers(low: float = 0.0, high: float = 1e15) -> st.SearchStrategy[float]:
    return st.floats(low, high, allow_nan=False, allow_infinity=False)


def optional(low: float = 0.0, high: float = 1e15) -> st.SearchStrategy[float]:
    return st.just(NAN) | numbers(low, high)


def tuples(of: st.SearchStrategy, size: int = 3) -> st.SearchStrategy:
    return st.lists(of, max_size=size).map(tuple)
