"""Which jobs should share devices at the least total cost: pure functions over cost arrays, each with a proven bound.

- `match_pairs`: the cheapest partition into pairs and solo jobs, on at most so many devices, as a `Matching`.
- `verify`: an independent check of what a `Matching` claims, as a `Verification`.
- `assign_seats`: pending jobs onto free seats beside residents, as a `Seating`.
"""

from interfere.matching.exact import match_pairs
from interfere.matching.records import Matching, Seating
from interfere.matching.seats import assign_seats
from interfere.matching.verify import Verification, verify

__all__ = [
    "Matching",
    "Seating",
    "Verification",
    "assign_seats",
    "match_pairs",
    "verify",
]
