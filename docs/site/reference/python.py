"""The pages of the Python names that other packages may import; mkdocstrings fills them from the docstrings."""

import inspect
from types import ModuleType

import interfere
import interfere.client
import interfere.records
import interfere.testing

PYTHON = """# Python

What `import interfere` gives, the errors that it raises, and what answers while a server is away. Each example runs as
it stands beside a server of the shipped model.
"""
RECORDS = """# Records

The records that go into a call and come out of it. All are frozen and checked when they are made. Times are in seconds,
sizes in bytes; an absent number is NaN.
"""
PROTOCOLS = """# Protocols

The seams between packages. Whatever has the methods can take the place of ours: see
[how to add](../architecture.md#how-to-add).
"""
TESTING = """# Conformance suites

A suite is a class of tests. Subclass it in the tests of your package, and give it your implementation by its fixture.
"""


def python_page() -> str:
    """Return the page of the names of `interfere`."""
    names = [f"{interfere._MODULE_OF[name]}.{name}" for name in interfere.__all__ if name in interfere._MODULE_OF]
    more = [name for name in _classes(interfere.client) if name.rpartition(".")[2] not in interfere.__all__]
    return PYTHON + _directives([*names, *more, "interfere.errors"])


def records_page() -> str:
    """Return the page of all records, by the modules that define them."""
    return RECORDS + _directives(_classes(interfere.records))


def protocols_page() -> str:
    """Return the page of the protocols."""
    return PROTOCOLS + _directives(["interfere.protocols"])


def testing_page() -> str:
    """Return the page of the conformance suites."""
    return TESTING + _directives([f"interfere.testing.{suite}" for suite in interfere.testing.SUITES])


def _classes(package: ModuleType) -> list[str]:
    """Return the full names of the classes that a package gives and defines, sorted."""
    found = (each for _, each in inspect.getmembers(package, inspect.isclass))
    return sorted(
        f"{each.__module__}.{each.__name__}" for each in found if each.__module__.startswith(package.__name__)
    )


def _directives(names: list[str]) -> str:
    return "".join(f"\n::: {name}\n" for name in names)
