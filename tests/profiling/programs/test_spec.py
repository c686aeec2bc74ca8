"""Named commands from a TOML file, and everything that can be wrong with one."""

from pathlib import Path

import pytest

from interfere.errors import InvalidInputError
from interfere.profiling.programs.spec import WARM_S, WARM_STEPS, Command, read_commands


def test_a_file_of_two(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    file = tmp_path / "jobs.toml"
    file.write_text(
        """
[train]
command = "python 'my train.py' --lr 0.1"
step_regex = 'step (\\d+)'
warm_steps = 10
warm_s = 3
cwd = "jobs"
env = { CUDA_VISIBLE_DEVICES = "0" }
[serve]
command = ["./serve", "--port", 80]
"""
    )
    train, serve = read_commands(file)
    assert train == Command(
        name="train",
        argv=("python", "my train.py", "--lr", "0.1"),
        step_regex=r"step (\d+)",
        warm_steps=10,
        warm_s=3,
        cwd=str(tmp_path / "jobs"),
        env=(("CUDA_VISIBLE_DEVICES", "0"),),
    )
    assert train.line == "python 'my train.py' --lr 0.1"
    assert serve == Command(name="serve", argv=("./serve", "--port", "80"), warm_steps=WARM_STEPS, warm_s=WARM_S)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no command"),
        ("[a", "not TOML"),
        ("a = 1", r"a key outside of a table.*\[a\]"),
        ("[a]", "is no command line"),
        ("[a]\ncommand = ''", "is no command line"),
        ('[a]\ncommand = "x\'"', "No closing quotation"),
        ("[a]\ncommand = 'x'\nwarm = 1", r"unknown key 'warm'.*\[a\]"),
        ("[a]\ncommand = 7", "command: must be a list: 7"),
        ("[a]\ncommand = 'x'\nwarm_s = true", "warm_s: must be a finite number"),
        ("[a]\ncommand = 'x'\nwarm_s = -1", r"\[a\]: warm_s: must be a finite number"),
        ("[a]\ncommand = 'x'\nstep_regex = '('", "no regular expression"),
        ("[a]\ncommand = 'x'\nstep_regex = '(a)(b)'", "has 2 groups"),
        ("[a]\ncommand = 'x'\ncwd = 'nowhere'", "is no folder"),
        ("[a]\ncommand = 'x'\nenv = { 'A=B' = 'c' }", "env: is no variable"),
        ("['a+b']\ncommand = 'x'", r"holds a \+"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text(text)
    with pytest.raises(InvalidInputError, match=said) as caught:
        read_commands(file)
    assert caught.value.remedy


def test_no_file_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_commands(tmp_path / "jobs.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInputError, match="not TOML"):
        read_commands(tmp_path / "bytes.toml")
