"""IP addresses as text. Pure functions."""

import ipaddress


def plain_address(text: str) -> str:
    """An address in its usual form: IPv4 as such, IPv6 in lower case without a zone."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return text
    return str(getattr(address, "ipv4_mapped", None) or address)
