"""Every command line in README and docs is one that the program takes; what needs no more than a server is run."""

import importlib
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import pytest
import typer

from interfere.cli import main
from interfere.client import PolicyClient
from interfere.config import SHIPPED_MODEL, Settings
from interfere.serving.calls.tokens import LocalTokens
from interfere.serving.server import start_server
from tests.docs.typed_pages import ROOT, blocks_of
from tests.waiting import PATIENCE_S

PAGES = (
    "README.md",
    "docs/commands.md",
    "docs/requests.md",
    "docs/operations.md",
    "docs/gpu.md",
    "docs/own-tables.md",
    "docs/benchmark.md",
    "docs/monitoring.md",
    "docs/whatif.md",
    "docs/architecture.md",
    "docs/troubleshooting.md",
    "docs/faq.md",
    "docs/release.md",
    "docs/index.md",
    "docs/real-jobs.md",
    "examples/scheduler_loop/README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
)
# Run as they stand, in this order, in an empty folder beside a server of the shipped model.
RUN = (
    "interfere match --example",
    "interfere predict --victim gemm --neighbour stream --json",
    "interfere advise --jobs gemm,stream",
    "interfere probe gemm --count 2",
    "interfere models list",
    "interfere profiles list",
    "interfere scopes list",
    "interfere grants",
    "interfere observe log",
    "interfere observe losses",
    "interfere observe reporters",
    "interfere store check",
    "interfere store backup saved.tar",
    "interfere timeline gpt-decode gemm --out page",
    "interfere data sources",
    "interfere data template sheets --job resnet --job bert --device-type a100-80gb --mode mps",
)
# The first words of all others, and why they are not run here.
NOT_RUN: Mapping[str, str] = {
    "serve": "answers until it is stopped: typed in docs/tutorials",
    "match gpu": "needs a server of the GPU model: tests/serving/models/test_gpu_model.py",
    "explain": "names a decision: typed in docs/tutorials/scheduler.md",
    "dashboard": "serves pages until it is stopped: tests/serving/test_dashboard.py",
    "ui": "serves pages until it is stopped: tests/training/publishing/test_mlflow_ui.py",
    "advise": "names jobs and a device type of the reader",
    "probe": "the line without --count says the same",
    "profile": "measures for minutes, or a program of the reader: tests/profiling",
    "onboard": "measures for half an hour: tests/training/onboarding",
    "run": "starts a program of the reader: tests/sharing/test_run.py, tests/serving/adapters/node",
    "slurm": "needs Slurm: tests/serving/adapters/slurm",
    "kubernetes": "needs a cluster: tests/serving/adapters/kubernetes",
    "replay": "needs an imported trace: tests/study",
    "whatif": "needs an imported trace: tests/study",
    "study": "needs an imported trace: tests/examples/test_study.py",
    "audit": "needs a Prometheus: typed in docs/tutorials/monitoring.md",
    "watch": "needs a Prometheus: typed in docs/tutorials/monitoring.md",
    "train": "minutes, or a table of the reader: typed in docs/tutorials/mlops.md",
    "retrain": "a table of the reader: typed in docs/tutorials/mlops.md",
    "promote": "needs a trained workspace: typed in docs/tutorials/mlops.md",
    "evaluate": "minutes, or a table or model of the reader: typed in docs/tutorials/researcher.md",
    "tune": "hundreds of trainings: tests/training/test_tuning.py",
    "work": "waits for tasks: tests/study/test_engines.py",
    "data": "a file or table of the reader, or the network: tests/data, tests/commands/data",
    "profiles register": "a sheet of the reader: typed in docs/tutorials/scheduler.md",
    "scopes": "a scope of the reader: tests/serving/test_commands.py",
    "callers": "a file of the server's tokens: tests/serving/calls",
    "models": "the operator's own models: tests/serving/models",
    "store copy": "needs PostgreSQL: tests/store",
    "agent": "needs its settings file: tests/serving/adapters/node",
    "advise-copies": "needs a public table: tests/commands",
}


# Other programs that stand at the beginning of a documented line, and why these lines are not run here.
OTHER_PROGRAMS: Mapping[str, str] = {
    ".ci/run": "runs these tests",
    "apt-get": "installs packages",
    "cat": "writes a file of the lines after it: typed in docs/tutorials",
    "createdb": "needs PostgreSQL: tests/store",
    "curl": "needs a Prometheus: typed in docs/tutorials/monitoring.md",
    "docker": "publishes a release: tests/deploy",
    "gh": "publishes a release",
    "git": "publishes a release",
    "go": "run by tests/examples/test_scheduler_loop.py",
    "helm": "publishes a release: tests/deploy",
    "make": "the targets exist, as checked below; .ci/run runs check, test and journeys",
    "mkdir": "makes a folder for the programs in examples/scheduler_loop: tests/examples/test_scheduler_loop.py",
    "node": "run by tests/examples/test_scheduler_loop.py",
    "pip": "installs a package of the reader: tests/docs/test_extending.py",
    "pytest": "tests a package of the reader: tests/docs/test_extending.py",
    "python": "a program of the reader: typed in docs/tutorials/researcher.md, tests/examples",
}


def command_lines() -> Iterator[tuple[str, str]]:
    """(page, line) of everything in a shell block that starts with `interfere`."""
    yield from ((name, line) for name, line in shell_lines() if line.startswith("interfere "))


def shell_lines() -> Iterator[tuple[str, str]]:
    """(page, line) of every command in a shell block, without variables before it and the file that it writes."""
    for name in PAGES:
        for block in blocks_of(name):
            text = re.sub(r"^(.*<<\s*'?(\w+)'?)\n.*?\n\2$", r"\1", block.text, flags=re.DOTALL | re.MULTILINE)
            lines = text.replace("\\\n", "").splitlines() if block.language == "bash" else ()
            for line in lines:
                command = re.sub(r"^(?:\w+=(?:\$\(.*?\)|\S*) )+|^export .*|^\.venv/bin/|^#.*", "", line.strip())
                yield from [(name, command)] if command else []


def find_command(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that the words name, and the words after its name."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    first, *rest = words
    module, _, attribute = settings["project"]["entry-points"]["interfere.commands"][first].partition(":")
    command = typer.main.get_command(getattr(importlib.import_module(module), attribute))
    while subcommands := getattr(command, "commands", None):
        command, rest = subcommands[rest[0]], rest[1:]
    return command, rest


def without_remark(line: str) -> str:
    """The line without the remark that explains it."""
    return line.partition(" #")[0].strip()


@pytest.mark.parametrize(("name", "line"), list(command_lines()))
def test_a_documented_command_line_is_parsed(name: str, line: str) -> None:
    command, arguments = find_command(shlex.split(line, comments=True)[1:])
    parser = command.make_parser(click.Context(command))
    _, unread, _ = parser.parse_args(arguments)  # raises on an unknown option
    assert unread == []


def test_the_documented_lines_that_need_no_more_than_a_server_are_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    server = start_server(Settings(model=SHIPPED_MODEL, work=Path("interfere-work"), port=0), LocalTokens())
    monkeypatch.setenv("INTERFERE_TARGET", server.address)
    monkeypatch.setenv("INTERFERE_TIMEOUT_S", f"{PATIENCE_S:g}")
    with PolicyClient(server.address) as client:
        client.wait_ready(PATIENCE_S)
    failed = {}
    try:
        for line in RUN:
            status: object = None
            try:
                main(shlex.split(line)[1:])
            except SystemExit as end:
                status = end.code
            printed = capfd.readouterr()
            if status not in (None, 0) or not (printed.out + printed.err).strip():
                failed[line] = (status, printed.err[-500:])
    finally:
        server.stop()
    assert failed == {}


def test_every_documented_line_is_run_or_has_a_reason_why_not() -> None:
    lines = {without_remark(line) for _, line in command_lines()}
    assert set(RUN) - lines == set(), "run here, and no longer documented"
    others = {line: [words for words in NOT_RUN if f"{line} ".startswith(f"interfere {words} ")] for line in lines}
    assert [line for line, reasons in others.items() if line not in RUN and not reasons] == []
    used = {max(reasons, key=len) for line, reasons in others.items() if reasons and line not in RUN}
    assert set(NOT_RUN) - used == set(), "reasons that no documented line needs"


def test_every_documented_program_is_ours_or_has_a_reason_why_its_lines_are_not_run() -> None:
    others = {line.split()[0] for _, line in shell_lines() if not line.startswith("interfere ")}
    assert others == set(OTHER_PROGRAMS)


def test_every_page_with_shell_blocks_is_read() -> None:
    tracked = subprocess.run(["git", "ls-files", "*.md"], capture_output=True, text=True, cwd=ROOT, check=True).stdout
    pages = [page for page in tracked.split() if not page.startswith("docs/tutorials/")]
    shell = ("bash", "sh", "shell", "console")
    assert {page for page in pages if any(block.language in shell for block in blocks_of(page))} <= set(PAGES)


def test_the_tests_that_the_reasons_name_exist() -> None:
    named = {
        path
        for reason in [*NOT_RUN.values(), *OTHER_PROGRAMS.values()]
        for path in re.findall(r"(?:tests|docs)/[\w./-]*\w", reason)
    }
    assert len(named) > 15
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_make_target_in_the_text_exists(page: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = "".join(block.text for block in blocks_of(page) if block.language == "bash")
    named = {*re.findall(r"`make ([a-z]+)", text), *re.findall(r"^make ([a-z]+)", blocks, re.MULTILINE)}
    assert named - targets == set()
