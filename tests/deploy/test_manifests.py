"""The chart renders with default and full values into objects that the API's schema allows, with least rights."""

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("kubernetes", reason="pip install -e '.[dev]'")

from deploy.monitoring import BOARD, RULES
from interfere.config import load_settings
from interfere.serving.adapters.kubernetes.command import app
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings
from interfere.serving.calls.access import read_callers
from tests.deploy.manifests import (
    CERT_MANAGER,
    CHART,
    DATABASE,
    FULL,
    KUSTOMIZE,
    VARIANTS,
    documents,
    expected,
    path_of,
    render,
)
from tests.deploy.schema import findings
from tests.deploy.tools import need

GRANTS = ("mode=gate", "grants.granuleGib=10")
CHOICES = {"default": (), "gate": ("mode=gate",), "full": FULL, "database": DATABASE, "cert-manager": CERT_MANAGER}


@pytest.fixture(scope="module", params=CHOICES)
def rendered(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return documents(render(*CHOICES[request.param]).stdout)


def pod_specs(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for each in objects:
        spec = each.get("spec") or {}
        template = (spec.get("jobTemplate") or {}).get("spec", spec).get("template")
        if template:
            yield f"{each['kind']}/{each['metadata']['name']}", template["spec"]


def test_helm_finds_nothing_to_say() -> None:
    done = subprocess.run([need("helm"), "lint", "--strict", str(CHART)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_with_identity_the_pods_show_the_tokens_that_the_server_knows(tmp_path: Path) -> None:
    keys = r'server.identity.keys=\{"keys": []\}'
    objects = documents(render("server.identity.enabled=true", keys).stdout)
    (files,) = (each["data"] for each in objects if each["metadata"]["name"] == "interfere-callers")
    (tmp_path / "callers.toml").write_text(files["callers.toml"])
    entries = read_callers(tmp_path / "callers.toml")[1]
    assert json.loads(files["jwks.json"]) == {"keys": []}
    specs = {name.partition("/")[2]: spec for name, spec in pod_specs(objects)}
    spec = specs["interfere-controller"]
    assert entries["controller"]["subjects"] == [f"system:serviceaccount:interfere:{spec['serviceAccountName']}"]
    (container,) = spec["containers"]
    (variable,) = container["env"]
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "server-token")
    assert variable["value"] == f"{mount['mountPath']}/token"
    (volume,) = (each for each in spec["volumes"] if each["name"] == "server-token")
    (source,) = volume["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == "interfere"
    (server,) = specs["interfere-server"]["containers"]
    given = {each["name"].removeprefix("INTERFERE_").lower(): each["value"] for each in server["env"]}
    settings = load_settings(environ={f"INTERFERE_{name.upper()}": value for name, value in given.items()})
    assert (settings.audience, str(settings.callers)) == ("interfere", "/etc/interfere/callers.toml")
    assert "keys is needed" in render("server.identity.enabled=true", check=False).stderr


def test_every_object_follows_the_schema(rendered: list[dict[str, Any]]) -> None:
    assert [found for each in rendered for found in findings(each)] == []
    identities = [(each["kind"], each["metadata"]["name"]) for each in rendered]
    assert len(identities) == len(set(identities)) > 8


def test_the_schema_check_finds_what_is_wrong() -> None:
    spec = {"containers": [{"image": 3, "nme": "c"}], "hostNetwork": "yes"}
    found = findings({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
    assert [line.partition(":")[0] for line in found] == [
        "Pod.spec.containers[0].image",
        "Pod.spec.containers[0].nme",
        "Pod.spec.containers[0]",
        "Pod.spec.hostNetwork",
    ]


def test_no_container_runs_as_root_or_writes_its_root(rendered: list[dict[str, Any]]) -> None:
    specs = list(pod_specs(rendered))
    assert len(specs) >= 2
    for name, spec in specs:
        assert spec["securityContext"]["runAsNonRoot"], name
        assert spec["securityContext"]["runAsUser"] > 0, name
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"], name
            assert not security["allowPrivilegeEscalation"], name
            assert security["capabilities"] == {"drop": ["ALL"]}, name
            assert "memory" in container["resources"]["limits"], name


def test_observe_only_has_no_webhook_and_no_right_to_make_claims() -> None:
    objects = documents(render().stdout)
    assert not {each["kind"] for each in objects} & {"MutatingWebhookConfiguration", "Secret", "CronJob"}
    rules = [rule for each in objects if each["kind"] in ("ClusterRole", "Role") for rule in each["rules"]]
    assert [
        rule for rule in rules if "resourceclaims" in rule["resources"] and {"create", "delete"} & {*rule["verbs"]}
    ] == []


@pytest.mark.parametrize("values", [(), ("mode=gate",), ("evictions.enabled=true",), GRANTS, FULL])
def test_pods_are_evicted_with_leave_alone(values: tuple[str, ...]) -> None:
    """In mode observe it is said who would be: without the right."""
    objects = documents(render(*values).stdout)
    rules = [rule for each in objects if each["kind"] == "ClusterRole" for rule in each["rules"]]
    assert any("pods/eviction" in rule["resources"] for rule in rules) == (values in (GRANTS, FULL))


def test_every_rule_says_why_each_verb_is_needed() -> None:
    lines = (CHART / "templates" / "rbac.yaml").read_text(encoding="utf-8").splitlines()
    rules = [k for k, line in enumerate(lines) if line.startswith("  - apiGroups")]
    assert len(rules) > 8
    for k in rules:
        reasons = []
        while lines[k - 1 - len(reasons)].startswith("  #"):
            reasons.append(lines[k - 1 - len(reasons)])
        verbs = re.search(r"verbs: \[(.*)\]", "\n".join(lines[k : k + 5]))
        assert verbs is not None
        for verb in verbs[1].split(", "):
            assert re.search(rf"\b{verb}\b", " ".join(reasons)), f"line {k + 1}: why {verb}?"


def test_no_rule_is_broader_than_what_it_names(rendered: list[dict[str, Any]]) -> None:
    for each in rendered:
        for rule in each.get("rules", ()) if each["kind"] in ("ClusterRole", "Role") else ():
            assert "*" not in str(rule), each["metadata"]["name"]
            if "secrets" in rule["resources"]:
                assert rule["resourceNames"] == ["interfere-webhook"]


def test_the_webhook_stops_nobody() -> None:
    (configuration,) = [
        each for each in documents(render("mode=gate").stdout) if each["kind"] == "MutatingWebhookConfiguration"
    ]
    assert {each["failurePolicy"] for each in configuration["webhooks"]} == {"Ignore"}
    selectors = [{key for key in each if key.endswith("Selector")} for each in configuration["webhooks"]]
    assert selectors == [{"namespaceSelector"}, {"objectSelector"}], "a namespace or a pod opts in"


def test_an_uninstall_releases_every_pod_before_anything_goes() -> None:
    """The hook is helm's alone: kubectl would run it at once."""
    (job,) = [each for each in documents(render("mode=gate").stdout) if each["kind"] == "Job"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    assert "Job" not in {each["kind"] for each in documents(path_of("gate").read_text(encoding="utf-8"))}
    assert "Job" not in {each["kind"] for each in documents(render().stdout)}, "nothing is gated in mode observe"


def test_nothing_of_a_release_outlives_it_but_the_store() -> None:
    """Secret with the CA's key and Lease are objects of the chart; the volume of the store is named in the notes."""
    objects = documents(render("mode=gate", "controller.journal.enabled=true").stdout)
    kinds = {(each["kind"], each["metadata"]["name"]) for each in objects}
    journal = ("PersistentVolumeClaim", "interfere-journal")
    assert {("Secret", "interfere-webhook"), ("Lease", "interfere-controller"), journal} <= kinds
    assert [each for each in objects if "helm.sh/resource-policy" in each["metadata"].get("annotations", {})] == []
    notes = (CHART / "templates" / "NOTES.txt").read_text(encoding="utf-8")
    assert "delete pvc" in notes


def test_every_part_has_a_policy_probes_and_other_nodes(rendered: list[dict[str, Any]]) -> None:
    selected = {
        each["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
        for each in rendered
        if each["kind"] == "NetworkPolicy"
    }
    for each in (each for each in rendered if each["kind"] in ("Deployment", "StatefulSet")):
        component = each["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"]
        assert component in selected
        spec = each["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        assert {"startupProbe", "livenessProbe"} <= set(container)
        (term,) = spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        assert term["podAffinityTerm"]["labelSelector"] == each["spec"]["selector"]
        if component == "webhook":
            assert container["lifecycle"]["preStop"] == {"sleep": {"seconds": 5}}


def test_with_cert_manager_the_webhook_has_no_rights_and_trusts_its_issuer() -> None:
    objects = documents(render(*CERT_MANAGER).stdout)
    (configuration,) = [each for each in objects if each["kind"] == "MutatingWebhookConfiguration"]
    certificates = {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "Certificate"}
    source = configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
    spec = certificates[source.removeprefix("interfere/")]
    service = configuration["webhooks"][0]["clientConfig"]["service"]
    assert f"{service['name']}.{service['namespace']}.svc" in spec["dnsNames"]
    specs = dict(pod_specs(objects))
    for name, secret in (("webhook", spec["secretName"]), ("controller", "interfere-marks-tls")):
        pod = specs[f"Deployment/interfere-{name}"]
        (volume,) = [each for each in pod["volumes"] if each["name"] == "tls"]
        assert volume["secret"]["secretName"] == secret
        assert "--certificates=/tls" in pod["containers"][0]["args"]
    accounts = [s["name"] for each in objects if each["kind"].endswith("Binding") for s in each["subjects"]]
    assert "interfere-webhook" not in accounts
    assert "Secret" not in {each["kind"] for each in objects}


def test_board_and_alerts_are_those_that_the_metrics_generate() -> None:
    objects = documents(render(*FULL).stdout)
    (board,) = [each for each in objects if each["metadata"]["name"] == "interfere-dashboard"]
    assert board["data"]["interfere.json"] == BOARD.read_text(encoding="utf-8")
    (rules,) = [each for each in objects if each["kind"] == "PrometheusRule"]
    assert rules["spec"] == yaml.safe_load(RULES.read_text(encoding="utf-8"))


def test_cron_jobs_never_overlap() -> None:
    jobs = [each for each in documents(render(*FULL).stdout) if each["kind"] == "CronJob"]
    assert len(jobs) == 2
    assert {each["spec"]["concurrencyPolicy"] for each in jobs} == {"Forbid"}


def test_every_command_of_a_container_is_one_that_the_program_takes(tmp_path) -> None:
    """The settings of the ConfigMap load too."""
    import click
    import typer

    group = typer.main.get_command(app)
    objects = documents(render(*FULL).stdout)
    commands = [c["args"] for _, spec in pod_specs(objects) for c in spec["containers"] if c["args"][0] == "kubernetes"]
    assert {arguments[1] for arguments in commands} == {"controller", "webhook", "release"}
    for _, name, *arguments in commands:
        command = group.commands[name]  # type: ignore[attr-defined]
        _, unread, _ = command.make_parser(click.Context(command)).parse_args(list(arguments))
        assert unread == []
    (config,) = [each for each in objects if each["metadata"]["name"] == "interfere-config"]
    file = tmp_path / "kubernetes.toml"
    file.write_text(config["data"]["kubernetes.toml"])
    settings = KubernetesSettings.load(file, {})
    assert (settings.mode, settings.device_type("NVIDIA-A100"), settings.burst) == ("gate", "a100", 100)
    assert tomllib.loads(config["data"]["kubernetes.toml"])["server"] == "interfere-server.interfere.svc:50051"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (("mode=force",), "mode"),
        (("windowSecond=3",), "windowSecond"),
        (("controller.replicas=0",), "replicas"),
        (("server.enabled=false",), "server.address"),
        (("retrain.enabled=true",), "retrain.data"),
        (("prometheus.url=http://p:9090",), "prometheus.progress"),
        (("server.replicas=2",), "set server.database.address, or server.replicas=1"),
        (("server.replicas=0",), "replicas"),
        (("server.database.address=postgresql://interfere:secret@db/interfere",), "/server/database/address"),
        (("server.database.address=mysql://db/interfere",), "/server/database/address"),
        (("server.database.passwordSecret=database",), "server.database.address is needed"),
        ((*DATABASE, "retrain.enabled=true"), "retrain publishes to the volume of one server"),
    ],
)
def test_wrong_values_are_refused_by_name(values: tuple[str, ...], words: str) -> None:
    done = render(*values, check=False)
    assert done.returncode != 0
    assert words in done.stderr


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_plain_manifests_are_those_of_the_chart(variant: str) -> None:
    assert path_of(variant).read_text(encoding="utf-8") == expected(variant)
    command = [need("kubectl"), "kustomize", str(KUSTOMIZE / variant)]
    built = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [found for each in documents(built.stdout) for found in findings(each)] == []
