"""Reads which commands are measured: named command lines, one from the shell or several from a TOML file.

The file holds one table a command::

    [train-resnet]
    command = "python train.py --epochs 1"    # or a list of words; for a shell, write ["bash", "-c", "..."]
    step_regex = 'step (\\d+)'                 # where the program does not mark its steps itself
    warm_steps = 10
    warm_s = 3.0
    cwd = "jobs"                              # relative to this file
    env = { CUDA_VISIBLE_DEVICES = "0" }
"""

import re
import shlex
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from interfere.errors import InvalidInputError, Violation
from interfere.records.checks import check, number_violations, text_violations
from interfere.records.documents import from_document

# Caches, allocators and autotuners are warm after a few steps; --warm-s is for programs whose are not.
WARM_STEPS, WARM_S = 5, 1.0
PAIR_SEPARATOR = "+"  # between two names on the command line


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program to run, and the name that it has in a table. Raises InvalidInputError, which names every bad field."""

    name: str
    argv: tuple[str, ...]
    cwd: str = ""  # empty: the current folder
    env: tuple[tuple[str, str], ...] = ()  # on top of the profiler's own environment
    step_regex: str = ""  # empty: the program marks its steps through interfere.progress
    warm_steps: int = WARM_STEPS  # steps, counted from the first mark, that are cut from every start
    warm_s: float = WARM_S  # and at least so many seconds after the first mark

    def __post_init__(self) -> None:
        violations = text_violations(self, "name") + number_violations(self, "warm_steps", "warm_s", nan=False)
        if PAIR_SEPARATOR in self.name:
            violations.append(
                _violation("name", f"holds a {PAIR_SEPARATOR}", self.name, "it joins two names; choose another")
            )
        if not self.argv or not self.argv[0] or any("\0" in word for word in self.argv):
            violations.append(
                _violation("command", "is no command line", self.argv, "give the program and its arguments")
            )
        if self.cwd and not Path(self.cwd).is_dir():
            violations.append(
                _violation("cwd", "is no folder", self.cwd, "give the folder to start in, or leave it out")
            )
        violations += [
            _violation("env", "is no variable", f"{name}={value}", "give NAME = 'text'")
            for name, value in self.env
            if not name or "=" in name or "\0" in name + value
        ]
        try:
            groups = re.compile(self.step_regex.encode()).groups
        except re.error as error:
            violations.append(
                _violation("step_regex", f"is no regular expression ({error})", self.step_regex, "see Python's re")
            )
        else:
            if groups > 1:
                remedy = "give at most one, the step counter; write (?:...) for the others"
                violations.append(_violation("step_regex", f"has {groups} groups", self.step_regex, remedy))
        check(violations)

    @property
    def line(self) -> str:
        """The command as typed in a shell."""
        return shlex.join(self.argv)


GPU_VARIABLE = "CUDA_VISIBLE_DEVICES"


def pinned_to_gpu(command: Command, gpu_uuid: str) -> Command:
    """Return the command with CUDA_VISIBLE_DEVICES set to one GPU.

    Raises InvalidInputError where the command's own environment names another GPU.
    """
    named = dict(command.env).get(GPU_VARIABLE, gpu_uuid)
    if named != gpu_uuid:
        raise InvalidInputError(
            f"command {command.name} chooses its own GPU",
            value=f"{GPU_VARIABLE}={named}",
            remedy=f"leave {GPU_VARIABLE} out: --gpu chooses for all commands",
        )
    return replace(command, env=(*(each for each in command.env if each[0] != GPU_VARIABLE), (GPU_VARIABLE, gpu_uuid)))


def _violation(field: str, what: str, value: object, remedy: str) -> Violation:
    return Violation(field=field, what=what, value=repr(value), remedy=remedy)


def read_commands(path: Path) -> tuple[Command, ...]:
    """Return the commands in a TOML file, in its order. Raises InvalidInputError, which names command and key."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInputError(
            f"the file of commands cannot be read ({error.strerror})", value=path, remedy="check --spec"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"not TOML: {error}", value=path, remedy='write [name] and command = "..."') from None
    if not tables:
        raise InvalidInputError("the file names no command", value=path, remedy='write [name] and command = "..."')
    return tuple(_command(path, name, table) for name, table in tables.items())


def _command(path: Path, name: str, table: Any) -> Command:
    location = f"{path}: [{name}]"
    if not isinstance(table, dict):
        raise InvalidInputError("a key outside of a table", value=location, remedy=f"write [{name}] and command = ...")
    known = {each.name for each in fields(Command)} - {"name", "argv"} | {"command"}
    if unknown := sorted(set(table) - known):
        remedy = f"one of {', '.join(sorted(known))}"
        raise InvalidInputError(f"unknown key {unknown[0]!r}", value=location, remedy=remedy)
    words, others = table.get("command", ""), {key: table[key] for key in table if key != "command"}
    if "cwd" in others:
        others["cwd"] = str(path.parent / str(others["cwd"]))
    if isinstance(env := others.get("env"), dict):
        others["env"] = [[key, str(value)] for key, value in env.items()]
    try:
        argv = shlex.split(words) if isinstance(words, str) else words
        argv = list(map(str, argv)) if isinstance(argv, list) else argv
        return from_document(Command, {"name": name, "argv": argv, **others})
    except InvalidInputError as error:
        what = f"{location}: {error.what.replace('argv', 'command')}"
        raise InvalidInputError(what, value=error.value, remedy=error.remedy, violations=error.violations) from None
    except ValueError as error:  # an open quotation mark
        raise InvalidInputError(
            f"{location}: command: {error}", value=words, remedy="close it, or give a list of words"
        ) from None
