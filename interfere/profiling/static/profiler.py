"""Static profiles from traces in a process of their own, which nothing that a user's factory does can harm.

That process is `python -P -m interfere.profiling.static.profiler NAME DEVICE_TYPE`. Its answer is one JSON document on
standard output, the profile or the error; whatever the traced code prints goes to standard error.
"""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
from typing import Any

from interfere.devices import require_peak_rates
from interfere.errors import InterfereError, InvalidInputError, NotFoundError, UnfitError, remedy_for_name
from interfere.profiling.catalogue import MODELS, find_factory
from interfere.profiling.static import Factory
from interfere.profiling.static.profiles import static_profile
from interfere.profiling.static.trace import trace_step
from interfere.records import NAN, JobProfile, SoloMeasurement
from interfere.records.documents import from_document, to_document

LIMIT_S = 600.0  # seven billion parameters take half a minute; a trace that takes longer than this waits for something


class StaticProfiler:
    """Profiles jobs alone on a device type by tracing them: no job runs, and no device is needed."""

    def __init__(self, device_type: str, *, limit_s: float = LIMIT_S) -> None:
        """Keep the device type. Raises NotFoundError for a device type whose peak rates are unknown."""
        require_peak_rates(device_type)
        self.device_type, self.limit_s = device_type, limit_s

    def profile_solo(self, workload: str) -> SoloMeasurement:
        """Return the static profile of a catalogue name or a user's `module:factory`; no third process can disturb it.

        Raises NotFoundError for an unknown name, InvalidInputError for a factory that cannot be traced, and UnfitError
        when the tracing process ends by itself or takes longer than `limit_s`.
        """
        answer = self._trace_in_child(workload)
        if "profile" in answer:
            return SoloMeasurement(profile=from_document(JobProfile, answer["profile"]), steal_frac=NAN)
        error_types = {error_type.__name__: error_type for error_type in (InvalidInputError, NotFoundError)}
        error_type = error_types.get(answer["kind"], UnfitError)
        raise error_type(answer["what"], value=answer["value"], remedy=answer["remedy"])

    def _trace_in_child(self, workload: str) -> dict[str, Any]:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "interfere.profiling.static.profiler", workload, self.device_type],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            output, _ = child.communicate(timeout=self.limit_s)
        except subprocess.TimeoutExpired:
            raise UnfitError(
                f"{workload} was not traced within {self.limit_s:g} s",
                remedy="make the factory and its step wait for nothing",
            ) from None
        finally:
            with contextlib.suppress(ProcessLookupError):  # also what the traced code started
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        try:
            answer: dict[str, Any] = json.loads(output)
        except ValueError:
            raise UnfitError(
                f"{workload} ended the process that traced it",
                value=f"exit code {child.returncode}",
                remedy="run the factory by itself; what it printed stands above",
            ) from None
        return answer


# --- the process that traces ------------------------------------------------------------------------------------------


def main(name: str, device_type: str) -> None:
    """Trace the named job on a device type, and print its profile, or the error, as JSON."""
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
    factory = find_factory(name) or _import_factory(name)
    return static_profile(trace_step(factory, name), name, device_type)


def _import_factory(name: str) -> Factory:
    """Import the factory that a user names as `module:factory`. Raises NotFoundError or InvalidInputError."""
    module, colon, attribute = name.partition(":")
    if not colon:
        listed = f"your own as module:factory, or one of: {'; '.join(MODELS)}"
        size = " (batch size"  # every pattern has one: likeness of the names alone counts
        models = {pattern.partition(size)[0]: pattern for pattern in MODELS}
        remedy = remedy_for_name(name.partition(size)[0], models, listed, whole=models)
        raise NotFoundError("no traceable model has this name", value=name, remedy=remedy)
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
