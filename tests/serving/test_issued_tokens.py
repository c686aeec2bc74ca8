"""Service-account tokens of a real issuer's keys: the valid one is answered, every other is refused."""

import json
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from typer.testing import CliRunner

from interfere.client import PolicyClient
from interfere.client.connections import Credentials
from interfere.config import Settings
from interfere.errors import ForbiddenError, InvalidInputError, UnauthenticatedError
from interfere.serving.calls.access import Access
from interfere.serving.calls.tokens import IssuedTokens
from interfere.serving.commands.callers import app
from interfere.serving.server import RunningServer
from tests.serving.test_attacks import authority, certificate, snapshot
from tests.waiting import PATIENCE_S

ISSUER, AUDIENCE = "https://kubernetes.default.svc.cluster.local", "interfere"
SUBJECT = "system:serviceaccount:interfere:interfere-controller"
RSA_KEY, OTHER_KEY = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def key_set(**keys: Any) -> str:
    """The JSON Web Key Set of private keys, by their ids."""
    documents = []
    for name, key in keys.items():
        algorithm: Any = jwt.algorithms.RSAAlgorithm if hasattr(key, "key_size") and key is not EC_KEY else None
        algorithm = algorithm or jwt.algorithms.ECAlgorithm
        document = algorithm.to_jwk(key.public_key(), as_dict=True)
        documents.append(document | {"kid": name, "use": "sig", "alg": "ES256" if key is EC_KEY else "RS256"})
    return json.dumps({"keys": documents})


def token(key: Any = RSA_KEY, key_id: str = "one", algorithm: str = "RS256", **claims: Any) -> str:
    now_s = time.time()
    given = {"iss": ISSUER, "aud": [AUDIENCE], "sub": SUBJECT, "iat": now_s - 60, "exp": now_s + 600} | claims
    present = {name: value for name, value in given.items() if value is not None}
    return jwt.encode(present, key, algorithm=algorithm, headers={"kid": key_id})


@pytest.fixture
def cluster(serve: Callable[..., RunningServer], settings: Settings, tmp_path: Path) -> RunningServer:
    """A server that knows the controller's service account, by the issuer's key `one`."""
    (tmp_path / "jwks.json").write_text(key_set(one=RSA_KEY))
    arguments = ["add", "controller", "--role=decide", "--subject", SUBJECT, "--file", str(tmp_path / "callers.toml")]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    keys = str(tmp_path / "jwks.json")
    return serve(replace(settings, callers=tmp_path / "callers.toml", issuer=ISSUER, issuer_keys=keys))


def client(server: RunningServer, file: Path, content: str) -> PolicyClient:
    file.write_text(content)
    return PolicyClient(server.address, timeout_s=PATIENCE_S, credentials=Credentials(token_file=file))


def test_a_service_account_is_the_caller_that_the_file_names(cluster: RunningServer, tmp_path: Path) -> None:
    with client(cluster, tmp_path / "token", token()) as controller:
        assert controller.match(snapshot()).actions
        with pytest.raises(ForbiddenError, match="controller lacks the role operate"):
            controller.remove_profiles(["p"])


UNSIGNED = jwt.encode({"iss": ISSUER, "aud": AUDIENCE, "sub": SUBJECT, "exp": 4e9}, "", "none", headers={"kid": "one"})


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (token(exp=time.time() - 60), "has expired"),
        (token(aud=["vault"]), "InvalidAudience"),
        (token(aud=None), "MissingRequiredClaim"),
        (token(exp=None), "MissingRequiredClaim"),
        (token(sub=None), "MissingRequiredClaim"),
        (token(nbf=time.time() + 600), "ImmatureSignature"),
        (token(iss="https://another.cluster"), "InvalidIssuer"),
        (token(OTHER_KEY), "InvalidSignature"),
        (token(OTHER_KEY, key_id="theirs"), "none of the issuer's keys"),
        (UNSIGNED, "not valid"),
        (token("guessed" * 8, algorithm="HS256"), "not valid"),
        (token(sub="system:serviceaccount:default:default"), "no known caller: system:serviceaccount:default:default"),
        (token()[:-8] + "AAAAAAAA", "InvalidSignature"),
        ("a.b.c", "Decode"),
    ],
)
def test_every_other_token_is_refused(cluster: RunningServer, tmp_path: Path, sent: str, why: str) -> None:
    with client(cluster, tmp_path / "token", sent) as stranger, pytest.raises(UnauthenticatedError) as refused:
        stranger.match(snapshot())
    assert why in str(refused.value)
    assert sent not in str(refused.value)


def test_a_token_is_good_until_it_expires_and_the_renewed_file_after_it(cluster: RunningServer, tmp_path: Path) -> None:
    ends_s = time.time() - 8.0  # within the leeway of clocks, which ends in two seconds
    with client(cluster, tmp_path / "token", token(exp=ends_s)) as controller:

        def replay() -> None:
            while time.time() < ends_s + PATIENCE_S:
                controller.match(snapshot())

        with pytest.raises(UnauthenticatedError, match="has expired"):
            replay()
        (tmp_path / "token").write_text(token())
        assert controller.match(snapshot()).actions


def test_keys_rotate_without_a_failed_call_and_a_withdrawn_one_ends(cluster: RunningServer, tmp_path: Path) -> None:
    keys = tmp_path / "jwks.json"

    def publish(**given: Any) -> None:
        (tmp_path / "new.json").write_text(key_set(**given))
        (tmp_path / "new.json").replace(keys)

    with client(cluster, tmp_path / "token", token()) as controller:
        assert controller.match(snapshot()).actions
        publish(one=RSA_KEY, two=EC_KEY)
        assert controller.match(snapshot()).actions
        (tmp_path / "token").write_text(token(EC_KEY, "two", "ES256"))
        assert controller.match(snapshot()).actions
        keys.write_text("half of a key s")
        assert controller.match(snapshot()).actions, "a broken file leaves the keys"
        publish(two=EC_KEY)
        assert controller.match(snapshot()).actions
        (tmp_path / "token").write_text(token())
        with pytest.raises(UnauthenticatedError, match="none of the issuer's keys"):
            controller.match(snapshot())


def test_a_server_does_not_start_without_keys_audience_or_callers(tmp_path: Path) -> None:
    keys = tmp_path / "jwks.json"
    for content in (None, "", "[]", '{"keys": []}'):
        if content is not None:
            keys.write_text(content)
        with pytest.raises(InvalidInputError, match="keys cannot be read"):
            IssuedTokens(ISSUER, AUDIENCE, str(keys))
    keys.write_text(key_set(one=RSA_KEY))
    for issuer, audience in (("", AUDIENCE), (ISSUER, "")):
        with pytest.raises(InvalidInputError, match="an issuer and an audience"):
            IssuedTokens(issuer, audience, str(keys))
    with pytest.raises(InvalidInputError, match="need a file of callers"):
        Access(None, None, IssuedTokens(ISSUER, AUDIENCE, str(keys)))


def test_keys_at_an_address_are_fetched_again_for_a_new_key_and_stay_while_it_is_out_of_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority(tmp_path, "site")
    certificate(tmp_path, "issuer", "site", "IP:127.0.0.1")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "site.pem"))
    monkeypatch.setattr("interfere.serving.calls.tokens.FETCH_S", 0.0)  # between two fetches: not now
    (tmp_path / "jwks.json").write_text(key_set(one=RSA_KEY))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "issuer.pem", tmp_path / "issuer.key")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        issued = IssuedTokens(ISSUER, AUDIENCE, f"https://127.0.0.1:{server.server_port}/jwks.json")
        assert issued.subject(token()) == SUBJECT
        (tmp_path / "jwks.json").write_text(key_set(one=RSA_KEY, two=EC_KEY))
        assert issued.subject(token(EC_KEY, "two", "ES256")) == SUBJECT
        server.shutdown()
        thread.join()
    with pytest.raises(UnauthenticatedError, match="none of the issuer's keys"):
        issued.subject(token(OTHER_KEY, "three"))
    assert issued.subject(token()) == SUBJECT
