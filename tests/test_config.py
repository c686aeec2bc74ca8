"""Settings: defaults, TOML, environment, options, in that order, and nothing misspelt passes."""

from dataclasses import fields
from pathlib import Path

import pytest

from interfere.config import _TYPES, Settings, load_settings
from interfere.errors import InvalidInputError


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('port = 1\nhost = "a"\nthreads = 2\ngrace_s = 3\n')
    settings = load_settings(
        file, environ={"INTERFERE_PORT": "4", "INTERFERE_HOST": "b", "OTHER": "x"}, host="c", store=None
    )
    assert (settings.threads, settings.port, settings.host, settings.grace_s) == (2, 4, "c", 3.0)
    assert settings.store_path == Path("interfere-work/store.db")


def test_what_a_job_under_measurement_carries_is_no_setting() -> None:
    carried = {"INTERFERE_PROGRESS": "/spool", "INTERFERE_PROGRESS_EVERY_S": "1", "INTERFERE_DATA": "/data"}
    assert load_settings(environ=carried) == Settings()


def test_every_field_has_a_type_a_help_line_and_a_default() -> None:
    assert set(_TYPES) == {f.name for f in fields(Settings)}
    assert all(f.metadata["help"] for f in fields(Settings))
    assert load_settings(environ={}) == Settings()


def test_paths_hang_on_the_workspace() -> None:
    settings = load_settings(environ={"INTERFERE_WORK": "/w"})
    assert (settings.store_path, settings.champion_path) == (Path("/w/store.db"), Path("/w/models/champion"))
    assert load_settings(environ={}, store=Path("/s.db")).store_path == Path("/s.db")


@pytest.mark.parametrize(
    ("text", "environ", "field", "remedy"),
    [
        ("prot = 1", {}, "prot", "did you mean port?"),
        ("zzz = 1", {}, "zzz", "one of work, model"),
        ("", {"INTERFERE_THRADS": "1"}, "INTERFERE_THRADS", "did you mean threads?"),
        ('port = "x"', {}, "port", "give a value of type int"),
        ("port = 1.5", {}, "port", "give a value of type int"),
        ("port = true", {}, "port", "give a value of type int"),
        ("", {"INTERFERE_PORT": "70000"}, "port", "0 to 65535"),
        ("threads = 0", {}, "threads", "1 to 256"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, environ: dict[str, str], field: str, remedy: str) -> None:
    file = tmp_path / "s.toml"
    file.write_text(text)
    with pytest.raises(InvalidInputError) as caught:
        load_settings(file, environ=environ)
    assert caught.value.violations[0].field.endswith(field)
    assert remedy in caught.value.violations[0].remedy


@pytest.mark.parametrize("content", [None, b"port =", b"\xff"])
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "f").write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"remedy"):
        load_settings(tmp_path / "f", environ={})


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"database": "mysql://db/x"}, "not the address of a PostgreSQL database"),
        ({"database": "postgresql://me:secret@db/x"}, "holds a password"),
        ({"database": "postgresql://db/x?password=secret"}, "holds a password"),
        ({"database": "postgresql://db/x", "store": Path("s.db")}, "not both"),
    ],
)
def test_a_database_that_cannot_be_is_refused_and_its_password_is_not_repeated(
    given: dict[str, object], what: str
) -> None:
    with pytest.raises(InvalidInputError) as raised:
        load_settings(environ={}, **given)
    assert what in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_database_stands_in_place_of_the_file() -> None:
    settings = load_settings(environ={"INTERFERE_DATABASE": "postgresql://me@db:5433/x"})
    assert settings.store_address == "postgresql://me@db:5433/x"
    assert load_settings(environ={}).store_address == Path("interfere-work/store.db")
