"""The pages of the Python names that other packages may import; mkdocstrings fills them from the docstrings."""

import inspect

import interfere
import interfere.records
import interfere.testing

PYTHON = """# Python

What `import interfere` gives, the errors that it raises, and what answers while a server is away. Each example runs as
it stands beside a server of the shipped model.
"""
MORE = ("interfere.client.fallback", "interfere.client.credentials", "interfere.errors")
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
    return PYTHON + _directives([*names, *MORE])


def records_page() -> str:
    """Return the page of all records, by the modules that define them."""
    found = inspect.getmembers(interfere.records, lambda each: inspect.isclass(each) and not issubclass(each, type))
    ours = [(each.__module__, name) for name, each in found if each.__module__.startswith("interfere.records.")]
    return RECORDS + _directives([f"{module}.{name}" for module, name in sorted(ours)])


def protocols_page() -> str:
    """Return the page of the protocols."""
    return PROTOCOLS + _directives(["interfere.protocols"])


def testing_page() -> str:
    """Return the page of the conformance suites."""
    return TESTING + _directives([f"interfere.testing.{suite}" for suite in interfere.testing.SUITES])


def _directives(names: list[str]) -> str:
    return "".join(f"\n::: {name}\n" for name in names)
