"""Settings of the server and its clients: one record, parsed once from TOML and `INTERFERE_` variables.

Precedence, low to high: defaults, the TOML file, the environment, the command line. An unknown key is an error.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

from interfere.errors import InvalidInputError, ModelError, NotFoundError, Violation, remedy_for_name
from interfere.extensions import ExtensionKind, extensions

PREFIX = "INTERFERE_"
SHIPPED_MODEL = Path(__file__).parent / "predict" / "default"  # the model folder of the installation: one CPU core
SHIPPED_GPU_MODEL = Path(__file__).parent / "predict" / "gpu"  # of published measurements on GPUs

DEFAULT_METRICS_PORT = 9464  # of OpenTelemetry's exporter for Prometheus; without a server of a free port
NO_METRICS = -1


def _about(text: str, *bounds: float) -> dict[str, Any]:
    """Return the help line of a setting, and for a number its smallest and its largest value."""
    return {"help": text, "bounds": bounds}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting, its default and its help line."""

    work: Path = field(default=Path("interfere-work"), metadata=_about("workspace: tables, models, store, runs"))
    model: Path | None = field(
        default=None,
        metadata=_about("model folder, or a shipped model: cpu, gpu; default: WORK/models/champion, else cpu"),
    )
    model_digest: str = field(
        default="", metadata=_about("digests of the models that may be served, separated by commas; default: any model")
    )
    canary: str = field(
        default="",
        metadata=_about("scopes that a newly published model decides for first, separated by commas; default: all"),
    )
    store: Path | None = field(default=None, metadata=_about("SQLite file of the store; default: WORK/store.db"))
    database: str = field(
        default="",
        metadata=_about("PostgreSQL database that holds the store, in place of a file: postgresql://USER@HOST/NAME"),
    )
    host: str = field(default="127.0.0.1", metadata=_about("address to listen on"))
    port: int = field(default=50051, metadata=_about("port to listen on; 0 takes a free one", 0, 65535))
    callers: Path | None = field(
        default=None, metadata=_about("TOML file of the callers that may ask, and their roles; default: of this host")
    )
    issuer: str = field(default="", metadata=_about("issuer of tokens of callers by `subjects`, as the tokens name it"))
    issuer_keys: str = field(
        default="", metadata=_about("file or https address of the issuer's JSON Web Key Set; default: no issuer")
    )
    audience: str = field(default="interfere", metadata=_about("audience that tokens of the issuer are for"))
    tls_certificate: Path | None = field(default=None, metadata=_about("PEM file of the server's certificate chain"))
    tls_key: Path | None = field(default=None, metadata=_about("PEM file of the key of tls_certificate"))
    tls_client_ca: Path | None = field(
        default=None, metadata=_about("PEM file of the authorities of clients' certificates; every client needs one")
    )
    insecure: bool = field(
        default=False, metadata=_about("answer everybody: no token files on this host, no TLS or callers beyond it")
    )
    runtime: Path | None = field(
        default=None, metadata=_about("folder of the token files of this host's servers; default: /run/interfere, ...")
    )
    metrics_port: int | None = field(
        default=None,
        metadata=_about(
            f"port of Prometheus /metrics; default: {DEFAULT_METRICS_PORT} of 127.0.0.1, {NO_METRICS}: none", -1, 65535
        ),
    )
    objective: str = field(
        default="",
        metadata=_about("objective of an installed package that decides requests which name none; default: ours"),
    )
    objectives: str = field(
        default="",
        metadata=_about("objectives of installed packages that requests may name, with commas; default: none"),
    )
    rules: str = field(
        default="", metadata=_about("rules of installed packages that every decision keeps, with commas; default: none")
    )
    time_budget_s: float = field(
        default=2.0, metadata=_about("time budget of a decision whose limits name none, CPU seconds", 0.001, 3600)
    )
    threads: int = field(default=4, metadata=_about("predictions and other quick requests handled at once", 1, 256))
    decisions_at_once: int = field(
        default=2, metadata=_about("decisions computed at once, of different scopes", 1, 256)
    )
    decision_workers: int | None = field(
        default=None,
        metadata=_about(
            "processes that compute decisions; default: decisions_at_once, 0 where there is one processor", 0, 256
        ),
    )
    max_concurrent_rpcs: int = field(
        default=64,
        metadata=_about("requests of a kind (reads, writes, decisions) of one caller; more are refused", 1, 100_000),
    )
    message_mib: int = field(default=64, metadata=_about("largest request and answer, MiB", 1, 1024))
    grace_s: float = field(
        default=5.0, metadata=_about("time that running requests have to finish at shutdown, seconds", 0, 3600)
    )
    model_poll_s: float = field(
        default=2.0, metadata=_about("how often the server looks for a newly published model, seconds", 0.01, 86_400)
    )
    max_log_entries: int = field(
        default=10_000_000,
        metadata=_about("observations that the log keeps; the oldest are forgotten beyond", 100_000, 1_000_000_000),
    )
    slow_call_s: float = field(default=1.0, metadata=_about("calls that take longer are logged, seconds", 0, 86_400))
    log_format: str = field(default="text", metadata=_about("log lines of the server: text or json"))
    target: str = field(default="127.0.0.1:50051", metadata=_about("address of the server that client commands ask"))
    timeout_s: float = field(
        default=10.0, metadata=_about("time a client command waits for an answer, seconds", 0.001, 86_400)
    )

    token_file: Path | None = field(
        default=None, metadata=_about("file with the token that client commands send to the server")
    )
    tls_ca: Path | None = field(
        default=None, metadata=_about("PEM file of the authority of the server's certificate; clients then use TLS")
    )
    tls_client_certificate: Path | None = field(
        default=None, metadata=_about("PEM file of the certificate that client commands show")
    )
    tls_client_key: Path | None = field(default=None, metadata=_about("PEM file of the key of tls_client_certificate"))

    def __post_init__(self) -> None:
        violations = []
        for setting in fields(self):
            value, bounds = getattr(self, setting.name), setting.metadata["bounds"]
            if bounds and value is not None and not bounds[0] <= value <= bounds[1]:
                remedy = f"a number from {bounds[0]} to {bounds[1]}"
                violations.append(Violation(field=setting.name, what="out of range", value=repr(value), remedy=remedy))
        if self.log_format not in ("text", "json"):
            value, remedy = repr(self.log_format), "text or json"
            violations.append(Violation(field="log_format", what="unknown format", value=value, remedy=remedy))
        violations += _database_violations(self)
        if violations:
            raise InvalidInputError.from_violations(violations)

    @property
    def site_policy_names(self) -> tuple[str, str, str]:
        """Return what the settings name of other packages: the default objective, the objectives, and the rules."""
        return self.objective, self.objectives, self.rules

    @property
    def store_address(self) -> Path | str:
        """Return the database or the SQLite file of the store."""
        return self.database or self.store_path

    @property
    def store_path(self) -> Path:
        """Return the SQLite file of the store."""
        return self.store or self.work / "store.db"

    @property
    def served_models_path(self) -> Path:
        """Return the folder of the copies of served models. The folder lies beside the store, because one server holds
        both."""
        return self.store_path.with_name(f"{self.store_path.name}.models")

    @property
    def champion_path(self) -> Path:
        """Return the folder into which training publishes the champion."""
        return self.work / "models" / "champion"

    @property
    def model_folder(self) -> Path | None:
        """Return the model folder that the setting `model` names, by path or by the name of a shipped model; None
        without the setting.

        The name of a shipped model takes precedence over a folder of that name in the working directory: give such a
        folder by its absolute path. Raises ModelError for a shipped model that this installation lacks.
        """
        name = "" if self.model is None else str(self.model)
        return shipped_model(name) if name in _shipped_models() else self.model

    @property
    def served_folder(self) -> Path:
        """Return the model folder to serve: the one that is set, else the workspace's champion, else the shipped one.

        Raises ModelError where there is none.
        """
        if self.model_folder is not None:
            return self.model_folder
        for folder in (self.champion_path, SHIPPED_MODEL):
            if (folder / "manifest.json").is_file():
                return folder
        raise ModelError("there is no model yet", value=self.champion_path, remedy="train one: interfere train")


def _database_violations(settings: Settings) -> list[Violation]:
    address, found = settings.database, ""
    scheme = address.partition("://")[0] if "://" in address else ""
    if address and scheme not in ("postgresql", "postgres", *extensions(ExtensionKind.STORE)):
        others = "".join(f", or {name}://..." for name in extensions(ExtensionKind.STORE))
        found, remedy = "not the address of a PostgreSQL database", f"write postgresql://USER@HOST/NAME{others}"
    elif ":" in address.partition("://")[2].rpartition("@")[0] or "password=" in address:
        address = address.partition("://")[0] + "://..."
        found = "holds a password, which lists of processes and logs would show"
        remedy = "leave it out, and name a file that holds it: ADDRESS?password_file=FILE, or PGPASSFILE"
    elif address and settings.store is not None:
        found, remedy = "the store is a file already", "give database or store, not both"
    return [Violation(field="database", what=found, value=repr(address), remedy=remedy)] if found else []


def shipped_model(name: str) -> Path:
    """Return the folder of a shipped model. Raises NotFoundError for an unknown name, ModelError for one left out."""
    folder = _shipped_models().get(name)
    if folder is None:
        known = ", ".join(_shipped_models())
        raise NotFoundError("no such shipped model", value=name, remedy=f"one of {known}, or the folder of a model")
    if not (folder / "manifest.json").is_file():
        raise ModelError(
            f"the shipped model {name!r} is not part of this installation",
            value=folder,
            remedy=f"install a release that holds it; in a clone: make {'model' if name == 'cpu' else name + '-model'}",
        )
    return folder


def _shipped_models() -> dict[str, Path]:
    return {"cpu": SHIPPED_MODEL, "gpu": SHIPPED_GPU_MODEL}


_TYPES: dict[str, Any] = {
    name: next(kind for kind in (get_args(hint) or (hint,)) if kind is not NoneType)
    for name, hint in get_type_hints(Settings).items()
}
"""Setting → its type; a setting that may be absent has the type of its value."""

# Variables of the same prefix that are not settings: the folder of public test data, and variables of a measured job.
_NOT_SETTINGS = {"INTERFERE_DATA", "INTERFERE_PROGRESS", "INTERFERE_PROGRESS_EVERY_S", "INTERFERE_PROGRESS_RUN"}


def load_settings(file: Path | None = None, *, environ: Mapping[str, str] | None = None, **options: object) -> Settings:
    """Return the settings of `file`, overridden by the environment, then by `options` (None: option not given).

    Raises InvalidInputError that names every unknown key and every value of the wrong type.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}  # typed one by one below
    violations: list[Violation] = []
    from_environ = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environ.items()
        if name.startswith(PREFIX) and name not in _NOT_SETTINGS
    }
    given_options = {name: value for name, value in options.items() if value is not None}
    for origin, source in ((str(file), read_toml(file)), ("environment", from_environ), ("options", given_options)):
        for name, value in source.items():
            path = f"{PREFIX}{name.upper()}" if origin == "environment" else f"{origin}: {name}"
            if name not in _TYPES:
                remedy = remedy_for_name(name, _TYPES)
                violations.append(Violation(field=path, what="unknown setting", value=repr(value), remedy=remedy))
                continue
            try:
                values[name] = _typed(name, value)
            except (TypeError, ValueError):
                remedy = f"give a value of type {_TYPES[name].__name__}"
                violations.append(Violation(field=path, what="wrong type of value", value=repr(value), remedy=remedy))
    if violations:
        raise InvalidInputError.from_violations(violations)
    return Settings(**values)


def _typed(name: str, value: object) -> object:
    """Return the value as the setting's type. Raises TypeError or ValueError for what it cannot hold."""
    setting_type = _TYPES[name]
    if setting_type is bool:
        return _truth(value)
    if isinstance(value, bool) or (isinstance(value, float) and setting_type is int):
        raise TypeError(name)
    return setting_type(value)


def _truth(value: object) -> bool:
    """Return a truth value, or the word for one. Raises ValueError."""
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if isinstance(value, bool):
        return value
    if str(value).lower() not in words:
        raise ValueError(value)
    return words[str(value).lower()]


def read_toml(file: Path | None) -> dict[str, object]:
    """Return the document of a TOML file; an empty one for None. Raises InvalidInputError."""
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInputError(
            f"the settings file cannot be read ({error.strerror})",
            value=file,
            remedy="check --config; the guides show one",
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"not TOML: {error}", value=file, remedy='write lines like: cluster = "main"') from None
