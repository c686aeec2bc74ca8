"""The roles of the chart hold exactly the rights that the programs use: every call is made, every right is needed."""

import datetime as dt
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.api_server.calls import ClusterApi
from interfere.serving.adapters.kubernetes.port import Controller, controller_metrics
from interfere.serving.adapters.kubernetes.releasing import release_for_good, release_pods
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings, Mode
from interfere.serving.adapters.kubernetes.webhook import CertificateKeeper
from interfere.serving.adapters.node.agent import PodJobs
from interfere.serving.server import RunningServer
from tests.deploy.manifests import documents, render
from tests.serving.adapters.kubernetes.conftest import api_server, controller, policy_server
from tests.serving.adapters.kubernetes.control_plane.api_server import (
    CLAIM,
    LEASE,
    POD,
    SECRET,
    TEMPLATE,
    WEBHOOK,
    ApiServer,
    Call,
)
from tests.serving.adapters.kubernetes.facts import DRIVER, pod, settings
from tests.serving.adapters.kubernetes.worlds import two_nodes, wait_seen
from tests.waiting import wait_until

__all__ = ["api_server", "controller", "policy_server"]  # fixtures
Start = Callable[[KubernetesSettings], Controller]
Rule = dict[str, Any]


def rules_of(account: str, *values: str) -> list[Rule]:
    """The rules of all roles that are bound to a service account."""
    objects = documents(render(*values).stdout)
    bound = {
        (each["roleRef"]["kind"], each["roleRef"]["name"])
        for each in objects
        if each["kind"].endswith("RoleBinding") and each["subjects"][0]["name"] == account
    }
    return [rule for each in objects if (each["kind"], each["metadata"]["name"]) in bound for rule in each["rules"]]


def allows(rule: Rule, call: Call) -> bool:
    """As RBAC decides: a rule with names allows no call without one."""
    allowed = call.group in rule["apiGroups"] and call.resource in rule["resources"] and call.verb in rule["verbs"]
    return allowed and ("resourceNames" not in rule or call.name in rule["resourceNames"])


def unused(rules: list[Rule], calls: set[Call]) -> set[tuple[str, str]]:
    """Verbs and resources that no call needed."""
    granted = {(verb, resource) for rule in rules for verb in rule["verbs"] for resource in rule["resources"]}
    return granted - {(call.verb, call.resource) for call in calls}


def check(rules: list[Rule], calls: set[Call]) -> None:
    """Every call is allowed, and every right is used, as soon as the watches have begun."""
    wait_until(lambda: unused(rules, set(calls)) == set(), f"unused: {unused(rules, set(calls))}")
    assert [call for call in calls if not any(allows(rule, call) for rule in rules)] == []


def follow(replica: Controller) -> None:
    """What the process does besides rounds: watch, hold the lease, look for the DeviceClass."""
    replica._lease._renewed_s = -1e18
    replica._lease.try_hold()
    replica._check_device_class()


@pytest.mark.parametrize("mode", Mode)
def test_the_controllers_rights(
    api_server: ApiServer, controller: Start, policy_server: RunningServer, mode: Mode
) -> None:
    two_nodes(api_server, "dra")
    (lease,) = [each for each in documents(render(f"mode={mode}").stdout) if each["kind"] == "Lease"]
    api_server.add(LEASE, lease | {"metadata": lease["metadata"] | {"namespace": "interfere"}})
    for k in range(2):
        api_server.add(POD, pod(f"p{k}", "request-server"))
    replica = controller(settings(mode=mode))
    wait_seen(replica, api_server)
    replica.advisor.round()
    if mode is Mode.GATE:
        for row in api_server.rows(POD):  # a claim that selected a GPU is given up for one of any
            api_server.patch(POD, "ml", row["metadata"]["name"], {"status": {"phase": "Pending"}})
        chosen, metrics = settings(mode=mode), controller_metrics()
        release_pods(replica._api, chosen, metrics, time.time() + 3600.0)
        assert {row["metadata"]["annotations"][names.CLAIM_FOR] for row in api_server.rows(CLAIM)} == {names.ANY_DEVICE}
        follow(replica)
    else:
        replica._lease.try_hold()
    check(rules_of("interfere-controller", f"mode={mode}"), api_server.calls)


def test_the_webhooks_rights(api_server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    for each in documents(render("mode=gate").stdout):
        kinds = {"Secret": SECRET, "MutatingWebhookConfiguration": WEBHOOK}
        if each["kind"] in kinds:
            scope = {"namespace": "interfere"} if each["kind"] == "Secret" else {}
            api_server.add(kinds[each["kind"]], each | {"metadata": each["metadata"] | scope})
    keeper = CertificateKeeper(ClusterApi(10.0, 100.0, 100), "interfere", "interfere-webhook", "interfere")
    keeper.refresh(dt.datetime.now(dt.UTC))
    check(rules_of("interfere-webhook", "mode=gate"), api_server.calls)


def test_the_rights_of_the_release(api_server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CronJob's account is that of the uninstall too."""
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    monkeypatch.setattr("interfere.serving.adapters.kubernetes.releasing.PAUSE_S", 0.0)
    two_nodes(api_server, "dra")
    api_server.add(POD, pod("gated", notes={names.STATE: "waiting"}))
    api_server.add(POD, pod("placed", gated=False, notes={names.STATE: "placed"}))
    api_server.add(POD, pod("templated", notes={names.TEMPLATE: "one-gpu"}))
    template = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]}}
    api_server.add(TEMPLATE, {"metadata": {"name": "one-gpu", "namespace": "ml"}, "spec": {"spec": template}})
    metadata = {"name": "placed-gpu", "namespace": "ml", "labels": {names.MANAGED_BY: names.MANAGER}}
    api_server.add(CLAIM, {"metadata": metadata | {"annotations": {names.CLAIM_FOR: "n0/GPU-n0-0"}}})
    api_server.add(WEBHOOK, {"metadata": {"name": "interfere"}, "webhooks": []})
    done = release_for_good(ClusterApi(10.0, 100.0, 100), settings(), controller_metrics(), "interfere")
    assert (done.released, done.still_gated) == (3, 0)
    check(rules_of("interfere-release", "mode=gate"), api_server.calls)


def test_the_agents_rights(api_server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    two_nodes(api_server, "hami")
    api_server.add(POD, pod("p", source="hami", gated=False, nodeName="n0", notes={names.HAMI_USE: "GPU-n0-0"}))
    chosen = settings(granule_gib=4.0)
    source = PodJobs(chosen, ClusterApi(chosen.timeout_s, chosen.writes_per_s, chosen.burst), "n0")
    (job,) = source.jobs()
    source.warn(job.id, "it holds too much")
    rules = rules_of("interfere-agent", "agent.enabled=true")
    called = {call for call in api_server.calls if call.resource not in ("version", "")}
    check(rules, called)
