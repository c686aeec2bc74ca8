"""Device types from the product names that drivers report: "NVIDIA A100-SXM4-80GB" is an a100-80gb.

Law: a product that `interfere.devices` knows gets its name there. Any other keeps form factor and memory size in its
name, so that it never gets the peak rates of a related product. Case, spaces and brand do not matter; no name is
refused.
"""

import re

from interfere.devices import KNOWN_DEVICE_TYPES, find_device_type

BRANDS = ("nvidia", "tesla", "geforce", "quadro")


def device_type_of_product(product: str) -> str:
    """Return the device type of a product name, such as a100-80gb for "NVIDIA A100-SXM4-80GB".

    An unknown product gives its own words in lower case without the brand; an empty name gives "".
    """
    device_type = find_device_type(product)
    if device_type.name in KNOWN_DEVICE_TYPES:
        return device_type.name
    words = re.split(r"[\s\-_/]+", product.lower())
    return "-".join(word for word in words if word and word not in BRANDS)
