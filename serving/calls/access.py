"""Who calls, and what a caller may do: callers with roles from one file, known by a token or a client certificate.

The file is read again when it changes, so tokens and roles are replaced while the server runs. It holds hashes, never
tokens. A caller may have several tokens: the new one is added, the old one is removed when nobody sends it any longer.
Without a file the callers are those of the host's token files (`calls.tokens`), if it has them. Without either
everybody who reaches the server may do everything; that must be asked for (--insecure).
"""

import hashlib
import hmac
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import Message

from interfere.errors import ForbiddenError, InvalidInputError, UnauthenticatedError
from interfere.file_writing import file_signature
from interfere.serving.calls.callers import address_of

if TYPE_CHECKING:
    from interfere.serving.calls.tokens import IssuedTokens, LocalTokens

METADATA = "authorization"
BEARER = "Bearer "
REMEDY = "send a token: INTERFERE_TOKEN_FILE=FILE, or metadata 'authorization: Bearer TOKEN'; see SECURITY.md"
REWRITE = "write it with: interfere callers add NAME --role decide --file FILE"
_NAME = re.compile(r"[A-Za-z0-9._@:/-]{1,128}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Role(StrEnum):
    """The operations that a caller may use."""

    PREDICT = "predict"  # ask for slowdowns
    READ = "read"  # look at decisions, grants, profiles, models and the log
    REPORT = "report"  # report measurements and profiles
    DECIDE = "decide"  # ask for decisions, which change grants and promises
    OPERATE = "operate"  # change the model, forget what was learned, mute reporters


ROLE_OF_METHOD: Mapping[str, Role] = {
    "PredictSlowdowns": Role.PREDICT,
    "PredictMatrix": Role.PREDICT,
    "RankPlacements": Role.PREDICT,
    "AdviseMode": Role.PREDICT,
    "SuggestProbes": Role.PREDICT,
    "Match": Role.DECIDE,
    "ReportObservations": Role.REPORT,
    "RegisterProfiles": Role.REPORT,
    "Explain": Role.READ,
    "ListDecisions": Role.READ,
    "ListScopes": Role.READ,
    "GetScope": Role.READ,
    "ListGrants": Role.READ,
    "GetProfile": Role.READ,
    "ListProfiles": Role.READ,
    "GetObservationLog": Role.READ,
    "GetModel": Role.READ,
    "ListModels": Role.READ,
    "RemoveProfiles": Role.OPERATE,
    "LoadModel": Role.OPERATE,
    "RollbackModel": Role.OPERATE,
    "PinModel": Role.OPERATE,
}
_IDENTITIES = ("sha256", "certificates", "subjects")  # of a caller: SHA-256 of tokens, names of certificates, subjects
# Observations that change what others reported.
_OPERATORS_OBSERVATIONS = ("rollback", "reporter_weight")
CHANGING = frozenset(
    {"Match", "ReportObservations", "RegisterProfiles", "RemoveProfiles", "LoadModel", "RollbackModel", "PinModel"}
)
"""Methods of which every call is written into the audit log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """One caller: its name, its roles, and the scopes for which they hold; none: every scope."""

    name: str
    roles: frozenset[Role] = frozenset(Role)
    scopes: frozenset[str] = frozenset()
    is_known: bool = True  # False: named by its address alone


class Access:
    """Identifies callers and checks what each may do. Thread-safe."""

    def __init__(
        self, file: Path | None = None, local: "LocalTokens | None" = None, issued: "IssuedTokens | None" = None
    ) -> None:
        """Read the callers of a file, or know those of the host's token files. Without either everybody may do
        everything. `issued`: tokens whose subjects the file names. Raises InvalidInputError."""
        self._file, self._local, self._issued, self._signature = file, local, issued, (0, 0, 0)
        self._callers: dict[str, dict[str, Caller]] = {kind: {} for kind in _IDENTITIES}
        if local is not None:
            self._callers["sha256"].update(local.callers())
        if issued is not None and file is None:
            raise InvalidInputError("the subjects of an issuer's tokens need a file of callers", remedy=REWRITE)
        if file is not None:
            self._read(file)

    def caller(self, context: grpc.ServicerContext) -> Caller:
        """Return who calls. Raises UnauthenticatedError for an unknown token or none."""
        if self._file is None and self._local is None:
            return Caller(name=address_of(context), is_known=False)
        if self._file is not None:
            self._read_again(self._file)
        callers = self._callers
        for identity in _certificate_names(context) if callers["certificates"] else ():
            if found := callers["certificates"].get(identity):
                return found
        token = _bearer_token(context)
        if not token:
            raise self._refusal("this server answers known callers only, and the call names none")
        sent = hashlib.sha256(token.encode()).hexdigest()
        for digest, caller in callers["sha256"].items():
            if hmac.compare_digest(digest, sent):
                return caller
        if self._issued is not None and token.count(".") == 2:  # header, claims, signature
            subject = self._issued.subject(token)
            if found := callers["subjects"].get(subject):
                return found
            raise UnauthenticatedError(
                "the subject of the token is no known caller",
                value=subject,
                remedy=f"interfere callers add NAME --role ROLE --subject {subject}",
            )
        raise self._refusal("the token of this call is unknown, or no longer valid")

    def _refusal(self, what: str) -> UnauthenticatedError:
        return UnauthenticatedError(what, remedy=REMEDY) if self._local is None else self._local.refusal(what)

    def reporters(self) -> dict[str, frozenset[str]] | None:
        """Return who may report now, and for which scopes (none: every scope); None where callers have no identity."""
        if self._file is None and self._local is None:
            return None
        if self._file is not None:
            self._read_again(self._file)
        callers = chain.from_iterable(each.values() for each in self._callers.values())
        return {caller.name: caller.scopes for caller in callers if Role.REPORT in caller.roles}

    def check_method(self, caller: Caller, method: str) -> None:
        """Raise ForbiddenError where the caller lacks the role for a method."""
        if method == "ReportObservations" and Role.OPERATE in caller.roles:
            return  # what it reports decides, see `check_request`
        _check_role(caller, ROLE_OF_METHOD.get(method, Role.OPERATE), method)

    def check_request(self, caller: Caller, method: str, request: Message) -> None:
        """Raise ForbiddenError where a request is about a scope or an entry that the caller may not touch.

        The reports of a known caller get its name as their reporter, whatever they say: nobody reports as another.
        """
        if not caller.is_known:
            return
        scope = _scope(request)
        if scope and caller.scopes and scope not in caller.scopes:
            raise ForbiddenError(
                f"{caller.name} has no role in this scope",
                value=scope,
                remedy=f"ask for a scope of its own: {', '.join(sorted(caller.scopes))}",
            )
        if method == "ListScopes" and caller.scopes:
            raise ForbiddenError(
                f"{caller.name} has roles in some scopes only, and this call names all",
                value=method,
                remedy=f"ask for the decisions of its own scopes: {', '.join(sorted(caller.scopes))}",
            )
        if method == "ReportObservations":
            for observation in request.observations:  # type: ignore[attr-defined]  # of this method's request
                kind = observation.WhichOneof("what")
                is_operators = kind in _OPERATORS_OBSERVATIONS
                _check_role(caller, Role.OPERATE if is_operators else Role.REPORT, kind or method)
                if is_operators:
                    continue
                if kind is not None and "reporter" in getattr(observation, kind).DESCRIPTOR.fields_by_name:
                    getattr(observation, kind).reporter = caller.name

    def _read_again(self, file: Path) -> None:
        """Read the callers' file again if it changed. A broken file leaves the callers unchanged."""
        try:
            if file_signature(file) != self._signature:
                self._read(file)
        except (OSError, InvalidInputError):
            return

    def _read(self, file: Path) -> None:
        callers: dict[str, dict[str, Caller]] = {kind: {} for kind in _IDENTITIES}
        signature, entries = read_callers(file)
        for name, entry in entries.items():
            caller = Caller(
                name=name,
                roles=frozenset(map(Role, entry["roles"])),
                scopes=frozenset(entry.get("scopes", ())),
            )
            for kind in _IDENTITIES:
                callers[kind] |= dict.fromkeys(entry.get(kind, ()), caller)
        self._callers, self._signature = callers, signature


def read_callers(file: Path) -> tuple[tuple[int, int, int], dict[str, dict[str, list[str]]]]:
    """Return the signature of a file of callers, and the entry of each caller by name.

    Raises InvalidInputError for a file that cannot be read or that holds anything else.
    """
    try:
        signature = file_signature(file)
        entries = tomllib.loads(file.read_text(encoding="utf-8")).get("callers", {})
    except OSError as error:
        raise InvalidInputError(
            f"the file of callers cannot be read ({error.strerror})", value=file, remedy=REWRITE
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"the file of callers is not TOML: {error}", value=file, remedy=REWRITE) from None
    check_callers(file, entries)
    return signature, entries


def check_callers(file: Path, entries: Any) -> None:
    """Raise InvalidInputError for entries that name no callers; `file` is where they stand."""
    if not isinstance(entries, dict):
        raise InvalidInputError("callers is not a table", value=file, remedy=REWRITE)
    for name, entry in entries.items():
        if fault := _fault(name, entry):
            raise InvalidInputError(f"callers.{name}: {fault}", value=file, remedy=REWRITE)


def _fault(name: str, entry: Any) -> str:
    """Return what is wrong with an entry; empty where nothing is."""
    lists = {"roles", "scopes", *_IDENTITIES}
    if not _NAME.fullmatch(name):
        return "not a name"
    if not isinstance(entry, dict) or not entry.keys() <= lists:
        return f"keys are {', '.join(sorted(lists))}"
    if not all(isinstance(values, list) and all(isinstance(each, str) for each in values) for values in entry.values()):
        return "every value is a list of texts"
    if not entry.get("roles") or not set(entry["roles"]) <= set(Role):
        return f"roles are some of {', '.join(Role)}"
    if not any(map(entry.get, _IDENTITIES)):
        return "it has neither a token nor a certificate nor a subject"
    return "" if all(map(_SHA256.fullmatch, entry.get("sha256", ()))) else "sha256 is 64 hexadecimal digits, lower case"


def _check_role(caller: Caller, role: Role, what: str) -> None:
    if role not in caller.roles:
        raise ForbiddenError(
            f"{caller.name} lacks the role {role!s}, which {what} needs",
            value=", ".join(sorted(caller.roles)),
            remedy="ask an administrator of the server for the role, or use another token",
        )


def _bearer_token(context: grpc.ServicerContext) -> str:
    for name, value in context.invocation_metadata():
        if name == METADATA and isinstance(value, str) and value.startswith(BEARER):
            return value.removeprefix(BEARER).strip()
    return ""


def _certificate_names(context: grpc.ServicerContext) -> list[str]:
    """Return the names in the client's certificate, SPIFFE ids and other alternative names first; none without TLS."""
    auth = context.auth_context()
    names = [*auth.get("x509_subject_alternative_name", ()), *auth.get("x509_common_name", ())]
    return [name.decode(errors="replace") if isinstance(name, bytes) else str(name) for name in names]


def _scope(request: Message) -> str:
    """Return the scope that a request names, `default` where it leaves it out; empty for a request without scopes."""
    return getattr(request, "scope", "") or "default" if "scope" in request.DESCRIPTOR.fields_by_name else ""
