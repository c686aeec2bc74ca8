"""The mutating webhook: gates pods that opted in, and makes their claims late ones; and its certificates.

Law: it never refuses a pod. Law: mutating twice is mutating once.

A CA and a leaf stand in a Secret and are renewed in time. The webhook configuration trusts the CA, and during its
change the old one too. Replicas share the Secret; who loses the race to write it reads it again.
"""

import base64
import datetime as dt
import ipaddress
import json
import logging
import os
import ssl
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from interfere.errors import ConflictError, InterfereError, InvalidInputError, NotFoundError, UnfitError
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.api_server.calls import MERGE, ClusterApi
from interfere.serving.adapters.kubernetes.objects.reading import read_pod
from interfere.serving.adapters.kubernetes.records import JsonObject
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings
from interfere.serving.http_server import Answer, Request

Patch = list[dict[str, Any]]
_log = logging.getLogger("interfere.kubernetes")
LEAF_DAYS = 90.0
CA_DAYS = 3650.0
PAUSE_S = 2.0  # before a certificate that could not be stored is tried again
TRIES = 3  # of a write that another replica may be doing too
RENEW_AT = 1 / 3  # of its life left: a month of a leaf's, in which a failing renewal is noticed
FIELDS = ("ca.crt", "ca.key", "tls.crt", "tls.key")


def review(request: Request, settings: KubernetesSettings) -> Answer:
    """Answer an AdmissionReview (admission.k8s.io/v1). Raises InvalidInputError for anything else."""
    try:
        document = json.loads(request.body)
        admission = document["request"]
        uid, pod = str(admission["uid"]), admission["object"]
        if not isinstance(pod, dict):
            raise TypeError("object is no pod")
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(
            f"this is no AdmissionReview ({error})", value=repr(request.body[:60]), remedy="POST one of v1"
        ) from None
    patch = mutation(pod, uid, settings) if admission.get("operation", "CREATE") == "CREATE" else []
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if patch:
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
    return Answer(document={"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})


def mutation(pod: JsonObject, uid: str, settings: KubernetesSettings) -> Patch:
    """Return a JSON patch (RFC 6902) that gates a pod; empty for a pod that stays as it is."""
    spec = pod.get("spec")
    record = read_pod(pod, settings)
    if not isinstance(spec, dict) or record.node or record.gated or not record.workload:
        return []
    if record.note(names.OPT_OUT) == "true":
        return []
    patch = _late_claim(pod, spec, uid)
    if set(record.all_special) - ({"claim template"} if patch else set()):
        return []  # the controller would leave it to Kubernetes anyway
    gate, has_gates = {"name": names.GATE}, isinstance(spec.get("schedulingGates"), list)
    path = "/spec/schedulingGates"
    return [*patch, {"op": "add", "path": f"{path}/-" if has_gates else path, "value": gate if has_gates else [gate]}]


def _late_claim(pod: JsonObject, spec: JsonObject, uid: str) -> Patch:
    """Return a patch that replaces the only claim template of a pod by a claim that the controller makes from it later.

    The claim of a template is made with the pod, before anybody could decide its device. A pod that a controller
    creates has no name yet, so the claim is named after the request.
    """
    claims = spec.get("resourceClaims")
    claim = claims[0] if isinstance(claims, list) and len(claims) == 1 and isinstance(claims[0], dict) else {}
    template = claim.get("resourceClaimTemplateName")
    if not template or claim.get("resourceClaimName"):
        return []
    name = f"interfere-{''.join(c for c in uid.lower() if c.isalnum())[:40]}"
    late = {"name": claim.get("name"), "resourceClaimName": name}
    patch: Patch = [{"op": "replace", "path": "/spec/resourceClaims/0", "value": late}]
    metadata = pod.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("annotations"), dict):
        key = names.TEMPLATE.replace("/", "~1")
        return [*patch, {"op": "add", "path": f"/metadata/annotations/{key}", "value": str(template)}]
    return [*patch, {"op": "add", "path": "/metadata/annotations", "value": {names.TEMPLATE: str(template)}}]


class Certificates(NamedTuple):
    """A CA with its key, and a leaf certificate with its key, as PEM texts, in the order of `FIELDS`.

    `ca_certificates`: the newest CA, then one that clients still trust.
    """

    ca_certificates: bytes
    ca_key: bytes
    certificate: bytes
    key: bytes


def renew(
    known: Certificates | None, hosts: list[str], now: dt.datetime, *, leaf_days: float = LEAF_DAYS
) -> Certificates:
    """Return the certificates to use now: the known ones, or new ones in place of those that end soon."""
    certificates = x509.load_pem_x509_certificates(known.ca_certificates) if known else []
    valid = [each for each in certificates if each.not_valid_after_utc > now]
    if known is None or not valid or _is_due(valid[0], now):
        ca_key = ec.generate_private_key(ec.SECP256R1())
        ca = _sign("interfere webhook CA", ca_key, None, ca_key, [], now, CA_DAYS)
        valid, leaf = [ca, *valid[:1]], None
    else:
        ca, ca_key = valid[0], _load_key(known.ca_key)
        leaf = x509.load_pem_x509_certificate(known.certificate)
    if known is not None and leaf is not None and not _is_due(leaf, now) and _hosts(leaf) == hosts:
        return known
    key = ec.generate_private_key(ec.SECP256R1())
    leaf = _sign(hosts[0], key, ca, ca_key, hosts, now, leaf_days)
    return Certificates(
        ca_certificates=b"".join(_pem(each) for each in valid),
        ca_key=_key_pem(ca_key),
        certificate=_pem(leaf),
        key=_key_pem(key),
    )


def load_into(context: ssl.SSLContext, certificates: Certificates) -> None:
    """Let a TLS context use the leaf certificate for every handshake from now on."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tls.pem"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(certificates.key + certificates.certificate)
        context.load_cert_chain(path)


class CertificateKeeper:
    """Keeps the certificates of a webhook current, in its Secret, its TLS context and its configuration."""

    def __init__(
        self,
        api: ClusterApi,
        namespace: str,
        name: str,
        configuration: str,
        *,
        hosts: Sequence[str] = (),
        leaf_days: float = LEAF_DAYS,
    ) -> None:
        """Keep the certificate of a webhook.

        `name` is the name of both the Service and the Secret. `configuration` is the name of the
        MutatingWebhookConfiguration. `hosts` are further names or addresses for the certificate, where the
        configuration has a `url` instead of a Service.
        """
        self._api, self._leaf_days, self._name = api, leaf_days, name
        self._secrets = f"/api/v1/namespaces/{namespace}/secrets"
        self._webhook = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{configuration}"
        self._hosts = [f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.cluster.local", *hosts]
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._used: Certificates | None = None

    def refresh(self, now: dt.datetime) -> Certificates:
        """Renew the certificate if needed, store it, write its CA into the webhook configuration, and use it.

        Raises InterfereError, and keeps the previous certificate in use, where reading or storing fails. A stored
        certificate is used even where its CA cannot be written; the error is raised afterwards.
        """
        for _ in range(TRIES):
            row = self._read()
            known = _certificates(row)
            current = renew(known, self._hosts, now, leaf_days=self._leaf_days)
            try:
                if current != known:
                    self._store(row, current)
                break
            except ConflictError:  # another replica renewed it: use that
                continue
        else:
            raise ConflictError("the certificates are written by others", value=self._name, remedy="tried again later")
        untrusted = self._try_to_trust(current)  # before it is in use: no handshake is refused meanwhile
        if current != self._used:
            load_into(self.context, current)
            self._used = current
            _log.info("the webhook uses a new certificate")
        if untrusted is not None:
            raise untrusted
        return current

    def _try_to_trust(self, certificates: Certificates) -> InterfereError | None:
        """Write the CA into the webhook configuration. Returns the error where that fails, else None."""
        last: InterfereError | None = None
        for _ in range(TRIES):
            try:
                self._trust(certificates)
            except ConflictError as error:  # another replica, or an administrator
                last = error
            except InterfereError as error:
                return error
            else:
                return None
        return last

    @property
    def ready(self) -> bool:
        """Whether there is a certificate to listen with."""
        return self._used is not None

    def _read(self) -> JsonObject | None:
        try:
            return self._api.call("GET", f"{self._secrets}/{self._name}")
        except NotFoundError:
            return None

    def _store(self, row: JsonObject | None, certificates: Certificates) -> None:
        data = {field: base64.b64encode(value).decode() for field, value in zip(FIELDS, certificates, strict=True)}
        if row is None:
            metadata = {"name": self._name, "labels": {"app.kubernetes.io/managed-by": "interfere"}}
            body = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": data}
            self._api.call("POST", self._secrets, body=body)
        else:
            version = (row.get("metadata") or {}).get("resourceVersion")
            body = {"metadata": {"resourceVersion": version}, "data": data}
            self._api.call("PATCH", f"{self._secrets}/{self._name}", body=body, content=MERGE)

    def _trust(self, certificates: Certificates) -> None:
        row = self._api.call("GET", self._webhook)
        bundle = base64.b64encode(certificates.ca_certificates).decode()
        webhooks = row.get("webhooks") or []
        if all((each.get("clientConfig") or {}).get("caBundle") == bundle for each in webhooks):
            return
        for each in webhooks:
            each["clientConfig"] = {**(each.get("clientConfig") or {}), "caBundle": bundle}
        self._api.call("PUT", self._webhook, body=row)


class MountedCertificates:
    """Keeps a TLS context current with tls.crt and tls.key of a mounted folder, as cert-manager fills a Secret."""

    def __init__(self, folder: Path) -> None:
        """Load the certificate. Raises UnfitError where there is none."""
        self._folder, self._used = folder, (b"", b"")
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.refresh()

    def refresh(self) -> None:
        """Load the certificate where it has changed. Raises UnfitError, and keeps the previous one, where it cannot be
        read."""
        certificate, key = self._folder / "tls.crt", self._folder / "tls.key"
        try:
            current = certificate.read_bytes(), key.read_bytes()
            if current != self._used:
                self.context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            remedy = "mount a Secret with tls.crt and tls.key"
            raise UnfitError(f"no certificate ({error})", value=self._folder, remedy=remedy) from None
        self._used = current


def until_ready(keeper: CertificateKeeper, stop: threading.Event) -> None:
    """Refresh until there is a certificate to listen with. The Secret may be created after the process starts."""
    while not keeper.ready and not stop.is_set():
        try:
            keeper.refresh(dt.datetime.now(dt.UTC))
        except InterfereError as error:
            _log.warning("no certificate yet: %s", error.one_line)
            stop.wait(0.0 if keeper.ready else PAUSE_S)


def _certificates(row: JsonObject | None) -> Certificates | None:
    data = (row or {}).get("data") or {}
    try:
        certificates = Certificates(*(base64.b64decode(data[field]) for field in FIELDS))
        x509.load_pem_x509_certificates(certificates.ca_certificates)
        x509.load_pem_x509_certificate(certificates.certificate)
        _load_key(certificates.ca_key)
    except (KeyError, ValueError, TypeError):
        return None  # empty, as the chart installs it, or damaged: made anew
    return certificates


def _sign(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey,
    hosts: list[str],
    now: dt.datetime,
    days: float,
) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject[:64])])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer.subject if issuer else name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))  # clocks differ
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(_usage(is_ca=issuer is None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general(h) for h in hosts]), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _is_due(certificate: x509.Certificate, now: dt.datetime) -> bool:
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return certificate.not_valid_after_utc - now < life * RENEW_AT


def _hosts(certificate: x509.Certificate) -> list[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(each.value) for each in names]


def _general(host: str) -> x509.GeneralName:
    """Return a host as the kind of name that certificates know: an IP address or a DNS name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, is_ca: bool) -> x509.KeyUsage:
    """Return the key usage of a certificate: a CA signs certificates, a leaf signs handshakes."""
    unused = "content_commitment key_encipherment data_encipherment key_agreement encipher_only decipher_only"
    others = dict.fromkeys(unused.split(), False)
    return x509.KeyUsage(digital_signature=not is_ca, key_cert_sign=is_ca, crl_sign=is_ca, **others)


def _load_key(text: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(text, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not an EC key")
    return key


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
