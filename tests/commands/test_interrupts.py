"""Law: a long command that is ended with Ctrl-C says what is kept and how to go on, and exits with status 130."""

import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from interfere.cli import RUN_AGAIN, main
from interfere.reports.document import Document
from tests.waiting import PATIENCE_S

JOBS = '[a]\ncommand = "true"\n[b]\ncommand = "true"\n'
TRAIN = ("interfere.training.pipeline", "train")
# The arguments of a long command, and the function of the library in which Ctrl-C comes.
LONG = [
    (("quickstart",), ("interfere.commands.quickstart.command", "run_quickstart")),
    (("profile", "solo", "--jobs", "gemm"), ("interfere.profiling.measurer", "measure")),
    (("profile", "pairs", "gemm+stream"), ("interfere.profiling.measurer", "measure")),
    (("profile", "campaign"), ("interfere.profiling.measurer", "measure")),
    (("profile", "command", "--workload", "a", "--", "true"), ("interfere.profiling.measurer", "measure")),
    (("profile", "filling"), ("interfere.sharing.executed_job", "measure_job")),
    (("onboard", "--spec", "jobs.toml", "--budget", "1m"), ("interfere.training.onboarding", "measure_site")),
    (("train", "--data", "cpu"), TRAIN),
    (("evaluate", "--data", "cpu"), ("interfere.training.evaluation.leaderboard", "evaluate_tables")),
    (("tune", "--data", "cpu", "--model", "gbdt"), ("interfere.training.commands.tune", "tune_model")),
    (("retrain", "--data", "cpu"), ("interfere.training.retrain", "retrain")),
    (("replay", "trace", "--data", "cpu"), ("interfere.study.questions", "ask")),
    (("replay", "trace", "--data", "cpu", "--out", "report"), ("interfere.study.questions", "ask")),
    (("whatif", "trace", "--data", "cpu", "--out", "report"), ("interfere.study.questions", "ask")),
    (("study", "study.toml", "--out", "report"), ("interfere.study.questions", "ask")),
    (("work", "tasks"), ("interfere.study.engines.folder", "work_in_folder")),
    (("audit", "--prometheus", "http://127.0.0.1:9"), ("interfere.commands.monitoring.audit", "_read")),
    (("data", "fetch", "gavel"), ("interfere.data.public_tables", "fetch_collection")),
]


@pytest.mark.parametrize(("arguments", "within"), LONG, ids=[" ".join(arguments[:2]) for arguments, _ in LONG])
def test_an_interrupted_command_says_what_is_kept(
    arguments: tuple[str, ...],
    within: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    (tmp_path / "jobs.toml").write_text(JOBS)
    (tmp_path / "study.toml").write_text('trace = "trace"\ntable = "cpu"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(".".join(within), interrupted)
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    assert stop.value.code == 130
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("interrupted; ")
    assert "kept" in line or "goes on" in line
    assert RUN_AGAIN not in line


def test_a_command_without_words_of_its_own_says_to_run_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("interfere.cli.load_command", interrupted)  # while the command is imported
    with pytest.raises(SystemExit) as stop:
        main(["train", "--data", "cpu"])
    assert stop.value.code == 130
    assert capsys.readouterr().err == f"interrupted; {RUN_AGAIN}\n"


@pytest.mark.parametrize(("out", "kept"), [("report", "kept in report/results"), ("", "no replay is kept")])
def test_an_interrupted_study_with_an_answer_says_it_too(
    out: str, kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A study that was interrupted after some replays reports those, and raises nothing."""
    answer = SimpleNamespace(
        interrupted=True, write=lambda _: [], facts=lambda _: {}, document=lambda: Document("What was replayed", ())
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("interfere.study.questions.ask", lambda *_: answer)
    with pytest.raises(SystemExit) as stop:
        main(["replay", "trace", "--data", "cpu", *(["--out", out] if out else [])])
    assert stop.value.code == 130
    printed = capsys.readouterr()
    assert "What was replayed" in printed.out
    assert "interrupted; " in printed.err
    assert kept in printed.err


@pytest.mark.journey
@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        (("quickstart", "--work", "w"), "finished stages are kept"),
        (("evaluate", "--data", "cpu", "--models", "mean,additive", "--work", "w"), "finished folds are kept"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_real_process_says_it(arguments: tuple[str, ...], kept: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "interfere", *arguments]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    try:
        while not process.stderr.readline().strip():
            assert process.poll() is None  # its first line of progress
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert "Traceback" not in said
    last = said.splitlines()[-1]
    assert last.startswith("interrupted; ")
    assert kept in last
