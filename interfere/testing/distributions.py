"""The laws of every package that adds to interfere: what its entry points name is there, documented and loadable."""

import os
import subprocess
import sys
from importlib.metadata import EntryPoint, distribution

import pytest

from interfere.extensions import ExtensionKind, extensions, help_line, is_own, load_extension


class DistributionLaws:
    """Every test gets `name`: the name of the distribution, as pip has it."""

    @pytest.fixture(scope="class")
    @classmethod
    def name(cls) -> str:
        """Override: the name of the distribution."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def entries(cls, name: str) -> list[tuple[ExtensionKind, EntryPoint]]:
        """Every entry point of the distribution in a group of ours."""
        groups = {str(kind): kind for kind in ExtensionKind}
        return [(groups[entry.group], entry) for entry in distribution(name).entry_points if entry.group in groups]

    def test_it_adds_something(self, entries: list[tuple[ExtensionKind, EntryPoint]]) -> None:
        assert entries

    def test_every_name_is_its_own_and_found(self, entries: list[tuple[ExtensionKind, EntryPoint]]) -> None:
        for kind, entry in entries:
            found = extensions(kind)[entry.name]
            assert not is_own(found), f"{entry.name} is a {kind.noun} of interfere: choose another name"
            assert found.value == entry.value, f"{entry.name} is a {kind.noun} of another package too"

    def test_every_module_says_in_its_first_line_what_it_adds(
        self, entries: list[tuple[ExtensionKind, EntryPoint]]
    ) -> None:
        for _, entry in entries:
            line = help_line(entry)
            assert len(line) > 10, entry.module
            assert not line.startswith("unavailable"), line

    def test_everything_can_be_loaded(self, entries: list[tuple[ExtensionKind, EntryPoint]]) -> None:
        for kind, entry in entries:
            assert load_extension(entry, kind) is not None

    def test_help_names_everything(self, entries: list[tuple[ExtensionKind, EntryPoint]]) -> None:
        shown = _interfere("--help")
        assert shown.returncode == 0
        for kind, entry in entries:
            if kind is not ExtensionKind.DATA_COMMAND and kind is not ExtensionKind.MODELS_COMMAND:
                assert entry.name in shown.stdout

    def test_commands_have_help_and_refuse_unknown_options(
        self, entries: list[tuple[ExtensionKind, EntryPoint]]
    ) -> None:
        for kind, entry in entries:
            if kind is ExtensionKind.COMMAND:
                assert _interfere(entry.name, "--help").returncode == 0
                refused = _interfere(entry.name, "--no-such-option")
                assert (refused.returncode, "Traceback" in refused.stderr) == (2, False)


def _interfere(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of interfere in a process of its own, with what this process can import."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "COLUMNS": "200"}
    command = [sys.executable, "-m", "interfere", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environ, timeout=240)
