"""The check of install lines finds the wrong ones, and the tree has none."""

from pathlib import Path

import pytest

from interfere import installation
from interfere.installation import install_line, is_checkout
from tests.install_lines import defined_extras, findings, wrong_lines

EXTRAS = {"train", "serve"}


@pytest.mark.parametrize(
    "text",
    [
        "pip install interfere",
        "run `pip install 'interfere[train]'`",
        "python -m pip install --upgrade interfere",
        "`/opt/interfere/bin/pip install\n   interfere` (the bare install)",
        "remedy = f\"pip install 'interfere[{extra}]'\"",
        "| `interfere[serve]` | ONNX |",
        "pip install 'interfere-gpu[everything]'",
        "pip install -e '.[trian]'",
        "pip3 install ./wheel.whl interfere",
    ],
)
def test_a_wrong_line_is_found(text: str) -> None:
    assert list(wrong_lines(text, EXTRAS))


@pytest.mark.parametrize(
    "text",
    [
        "pip install 'interfere-gpu[train,serve]'",
        "`pip install interfere-gpu`; then `interfere serve`",
        "python3 -m venv /opt/interfere && /opt/interfere/bin/pip install .",
        "pip install -e '.[train]'\nfrom interfere import PolicyClient",
        "pip install dist/interfere_gpu-0.1.0-py3-none-any.whl && interfere --version",
        "$(BIN)/pip --disable-pip-version-check install --quiet --editable '.[serve]'",
        "rows[k] and self.[k]",
    ],
)
def test_a_right_line_passes(text: str) -> None:
    assert not list(wrong_lines(text, EXTRAS))


def test_the_tree_has_no_wrong_line() -> None:
    assert findings() == []


def test_the_extras_of_missing_libraries_are_defined() -> None:
    assert set(installation.LIBRARIES) <= defined_extras()


def test_a_checkout_installs_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert is_checkout()
    monkeypatch.chdir(installation.HOME)
    assert install_line("train") == "pip install -e '.[train]'"
    assert install_line() == "pip install -e ."
    monkeypatch.chdir(tmp_path)
    assert install_line("train", "serve") == f"pip install -e '{installation.HOME}[train,serve]'"


def test_an_installed_wheel_names_the_distribution(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(installation, "is_checkout", lambda: is_checkout(tmp_path))
    assert install_line("train") == "pip install 'interfere-gpu[train]'"
    assert install_line() == "pip install interfere-gpu"


def test_a_project_around_an_installed_wheel_is_no_checkout(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "somebody"\n')
    assert not is_checkout(tmp_path)
    (tmp_path / "pyproject.toml").write_text("not toml")
    assert not is_checkout(tmp_path)
