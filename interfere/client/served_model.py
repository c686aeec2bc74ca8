"""The model that a running server serves, and whether the server took a newly published one."""

import time
from pathlib import Path

from interfere.client.policy_client import PolicyClient
from interfere.errors import InterfereError, UnavailableError
from interfere.records import ServedModels

LOOK_S = 0.2  # between two looks
TIMEOUT_S = 15.0  # a server looks every two seconds, and learns 10,000 observations a second


def served_note(target: str, version: str, folder: Path) -> str:
    """Wait until the server at `target` serves the published version, and return the result as one sentence.

    The sentence gives the reason where the server does not serve this version in time. `folder`: the published folder.
    """
    deadline_s = time.monotonic() + TIMEOUT_S
    try:
        with PolicyClient(target, timeout_s=2.0) as client:
            while (served := client.model().version) != version:
                if why := _why_not(client.list_models(), version, folder):
                    return f"the server at {target} serves {served}: {why}"
                if time.monotonic() > deadline_s:
                    return f"the server at {target} still serves {served}"
                time.sleep(LOOK_S)
    except UnavailableError:
        return f"no server answers at {target}: the next one to start there serves it"
    except InterfereError as error:
        return f"the server at {target} cannot be asked: {error.what}"
    return f"the server at {target} serves it now"


def served_version(target: str) -> str:
    """Return the version of the model that the server at `target` serves; empty where no server answers."""
    try:
        with PolicyClient(target, timeout_s=2.0) as client:
            return client.model().version
    except InterfereError:
        return ""


def _why_not(models: ServedModels, version: str, folder: Path) -> str:
    """Return the reason why a server does not take a version; empty where it still may."""
    if Path(models.watched_folder).resolve() != folder.resolve():
        return f"it watches another folder, {models.watched_folder}"
    if models.pinned:
        return "that one is pinned; interfere models pin --release"
    return f"it refused {models.refused}" if models.refused.startswith(f"{version}: ") else ""
