"""Device types from the names that drivers report: "NVIDIA A100-SXM4-80GB" is an a100.

Law: the same card in another case, form factor or memory size is the same device type; no name is refused.
"""

import re

BRANDS = ("nvidia", "tesla", "geforce", "quadro", "graphics", "device")
MEMORY = re.compile(r"\d+gb")


def device_type_of(name: str) -> str:
    """The family word and what belongs to it, without brand, form factor and memory size; empty for an empty name."""
    words = [word for word in re.split(r"[\s\-_/]+", name.lower()) if word and word not in BRANDS]
    kept = words[:1]
    for word in words[1:]:
        if MEMORY.fullmatch(word):
            break
        if word in ("ti", "super", "laptop") or (kept[0] in ("rtx", "gtx") and len(kept) == 1) or word == "ada":
            kept.append(word)
        else:
            break
    return "".join(kept)
