"""The process that traces one job: `python -P -m interfere.profiling.static.worker NAME DEVICE_TYPE`.

Its answer is one JSON document on standard output; whatever the traced code prints goes to standard error.
"""

import importlib
import json
import os
import sys

from interfere.errors import InterfereError, InvalidInputError, NotFoundError
from interfere.profiling import catalogue
from interfere.profiling.static.traceable import Factory
from interfere.records import JobProfile
from interfere.records.documents import to_document


def main(name: str, device_type: str) -> None:
    """Print the profile, or the error, as JSON."""
    answer_file = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        answer: dict[str, object] = {"profile": to_document(_traced_profile(name, device_type))}
    except InterfereError as error:
        value = None if error.value is None else str(error.value)
        answer = {"kind": type(error).__name__, "what": error.what, "value": value, "remedy": error.remedy}
    with answer_file:
        json.dump(answer, answer_file)


def _traced_profile(name: str, device_type: str) -> JobProfile:
    from interfere.profiling.static.profiles import static_profile
    from interfere.profiling.static.trace import trace_step

    factory = catalogue.find_factory(name) or _import_factory(name)
    return static_profile(trace_step(factory, name), name, device_type)


def _import_factory(name: str) -> Factory:
    """The factory of a user, `module:factory`."""
    module, colon, attribute = name.partition(":")
    if not colon:
        raise NotFoundError(
            "no traceable model has this name",
            value=name,
            remedy=f"your own as module:factory, or one of: {'; '.join(catalogue.name_patterns())}",
        )
    sys.path.append(os.getcwd())  # the user's own module; last, so that it hides nothing of ours
    try:
        factory: Factory = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise NotFoundError(
            f"{name} cannot be imported", value=error, remedy="start where the module lies, or set PYTHONPATH"
        ) from None
    except Exception as error:  # whatever somebody's module raises
        raise InvalidInputError(
            f"{name} cannot be imported",
            value=f"{type(error).__name__}: {error}",
            remedy="make the module importable by itself",
        ) from None
    return factory


if __name__ == "__main__":
    main(*sys.argv[1:])
