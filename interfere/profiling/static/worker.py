"""Traces one named job in a process of its own: somebody else's code never runs in ours.

The child's answer is one JSON document on its standard output; whatever the traced code prints goes to standard error.
"""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys

from interfere.devices import require_peak_rates
from interfere.errors import InterfereError, InvalidInputError, NotFoundError, UnfitError
from interfere.profiling import catalogue
from interfere.records import JobProfile

LIMIT_S = 600.0  # seven billion parameters take half a minute; past this something waits for what never comes


def profile_named(name: str, device: str, *, workload: str = "", limit_s: float = LIMIT_S) -> JobProfile:
    """Static profile of a catalogue name or a user's `module:factory` on a device type.

    Raises NotFoundError for an unknown name or device, InvalidInputError for a factory that cannot be traced,
    UnfitError for one that ends or outlasts its process.
    """
    require_peak_rates(device)  # before a child starts
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "interfere.profiling.static.worker", name, device, workload or name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        said, _ = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise UnfitError(
            f"{name} was not traced within {limit_s:g} s", remedy="make the factory and its step wait for nothing"
        ) from None
    finally:
        with contextlib.suppress(ProcessLookupError):  # also what the traced code started
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    try:
        answer = json.loads(said)
    except ValueError:
        raise UnfitError(
            f"{name} ended the process that traced it",
            value=f"exit code {child.returncode}",
            remedy="run the factory by itself; what it printed stands above",
        ) from None
    if "profile" in answer:
        return JobProfile.from_dict(answer["profile"])
    kinds = {kind.__name__: kind for kind in (InvalidInputError, NotFoundError)}
    raise kinds.get(answer["kind"], UnfitError)(answer["what"], value=answer["value"], remedy=answer["remedy"])


def _traced_here(name: str, device: str, workload: str) -> JobProfile:
    from interfere.profiling.static.profiles import static_profile
    from interfere.profiling.static.trace import trace

    factory = catalogue.find(name)
    if factory is None:
        module, colon, attribute = name.partition(":")
        if not colon:
            raise NotFoundError(
                "no traceable model has this name",
                value=name,
                remedy=f"your own as module:factory, or one of: {'; '.join(catalogue.names())}",
            )
        sys.path.append(os.getcwd())  # the user's own module; last, so that it hides nothing of ours
        try:
            factory = getattr(importlib.import_module(module), attribute)
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
    return static_profile(trace(factory, name), workload, device)


def main(name: str, device: str, workload: str) -> None:
    """Print the profile, or the error, as JSON."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        answer: dict[str, object] = {"profile": _traced_here(name, device, workload).to_dict()}
    except InterfereError as error:
        value = None if error.value is None else str(error.value)
        answer = {"kind": type(error).__name__, "what": error.what, "value": value, "remedy": error.remedy}
    with answers:
        json.dump(answer, answers)


if __name__ == "__main__":
    main(*sys.argv[1:])
