"""Device types from the product names that drivers report: "NVIDIA A100-SXM4-80GB" is an a100-80gb.

Law: a product that `interfere.devices` knows gets its name there. Any other keeps form factor and memory size in its
name, so that it never gets the peak rates of a related product. Case, spaces and brand do not matter; no name is
refused.
"""

import re

from interfere.devices import KNOWN_DEVICE_TYPES, find_device_type

BRANDS = ("nvidia", "tesla", "geforce", "quadro")


def device_type_of_product(product: str) -> str:
    """The name of the known device type, else the words of the product name without the brand; "" for an empty name."""
    device_type = find_device_type(product)
    if device_type.name in KNOWN_DEVICE_TYPES:
        return device_type.name
    words = re.split(r"[\s\-_/]+", product.lower())
    return "-".join(word for word in words if word and word not in BRANDS)
