"""Device types from the names that drivers report: "NVIDIA A100-SXM4-80GB" is an a100-80gb.

Law: a product that `interfere.devices` knows gets its name there; any other keeps form factor and memory size in its
name, so that it never gets the ceilings of a sister; case, spaces and brand do not count; no name is refused.
"""

import re

from interfere.devices import KNOWN, device_type

BRANDS = ("nvidia", "tesla", "geforce", "quadro")


def device_type_of(name: str) -> str:
    """The known device type of that name, else its words without the brand; empty for an empty name."""
    known = device_type(name)
    if known.name in KNOWN:
        return known.name
    words = re.split(r"[\s\-_/]+", name.lower())
    return "-".join(word for word in words if word and word not in BRANDS)
