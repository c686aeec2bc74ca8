"""Webhook and release as processes of the real command: whoever is away, pods are scheduled."""

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.serving.adapters.kubernetes import names
from tests.deploy.manifests import documents, render
from tests.serving.adapters.kubernetes.conftest import WORKLOADS
from tests.serving.adapters.kubernetes.control_plane.admission import create_pod
from tests.serving.adapters.kubernetes.control_plane.api_server import CLAIM, NAMESPACE, POD, SECRET, WEBHOOK, ApiServer
from tests.serving.adapters.kubernetes.control_plane.scheduler import StandInScheduler
from tests.serving.adapters.kubernetes.facts import DRIVER, pod
from tests.serving.adapters.kubernetes.processes import Processes
from tests.serving.adapters.kubernetes.worlds import pods_by_name, two_nodes
from tests.waiting import PATIENCE_S, free_port

pytestmark = pytest.mark.journey
MANIFESTS = Path(__file__).parents[4] / "deploy" / "kustomize" / "gate" / "resources.yaml"
SERVICE = "interfere", "interfere-webhook"


@pytest.fixture
def processes(api_server: ApiServer, tmp_path: Path) -> Iterator[Processes]:
    each = Processes(api_server, tmp_path)
    yield each
    each.stop()


def manifests(kind: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(MANIFESTS.read_text()) if each and each["kind"] == kind]


def ca_bundle(api: ApiServer) -> str:
    (row,) = api.rows(WEBHOOK)
    return str(row["webhooks"][0]["clientConfig"].get("caBundle", ""))


def test_pods_are_gated_while_the_webhook_lives_and_scheduled_while_it_is_dead(
    api_server: ApiServer, processes: Processes, tmp_path: Path
) -> None:
    """With the chart's own Secret and webhook configuration, over TLS, through a new CA too."""
    two_nodes(api_server, "hami")
    api_server.add(NAMESPACE, {"metadata": {"name": "ml", "labels": {names.OPT_IN: names.ENABLED}}})
    api_server.add(NAMESPACE, {"metadata": {"name": "other"}})
    (secret,), (configuration,) = manifests("Secret"), manifests("MutatingWebhookConfiguration")
    secret["metadata"]["namespace"] = "interfere"
    api_server.add(SECRET, secret)
    api_server.add(WEBHOOK, configuration)
    config, port, number = tmp_path / "kubernetes.toml", free_port(), itertools.count()
    config.write_text('mode = "gate"\n')
    arguments = ["webhook", "--config", str(config), "--port", str(port), "--every", "0.5"]

    def is_gated(namespace: str = "ml", **labels: str) -> bool:
        row = pod(f"p{next(number)}", source="hami", gated=False, namespace=namespace)
        row["metadata"]["labels"] |= labels
        return "schedulingGates" in create_pod(api_server, row, {SERVICE: port})["spec"]

    first = processes.start(*arguments)
    processes.wait_for(lambda: bool(ca_bundle(api_server)) and is_gated())
    assert not is_gated("other"), "nobody opted in"
    processes.wait_for(lambda: is_gated("other", **{names.OPT_IN: names.ENABLED}))
    first.kill()  # kill -9
    first.wait()
    api_server.delete(POD, "ml", "p0")
    before = len(pods_by_name(api_server))
    assert not any(is_gated() for _ in range(4)), "failurePolicy Ignore"
    free = [row for row in pods_by_name(api_server).values() if "schedulingGates" not in row["spec"]]
    scheduler = StandInScheduler(api_server)
    scheduler.once()
    assert len(scheduler.bound) == len(free) >= 5, "four pods of the namespace, and the one that never opted in"
    assert len(pods_by_name(api_server)) == before + 4
    processes.start(*arguments)
    processes.wait_for(is_gated)
    # An administrator empties the Secret: another CA, without a restart.
    known = ca_bundle(api_server)
    empty = dict.fromkeys(("ca.crt", "ca.key", "tls.crt", "tls.key"), "")
    api_server.patch(SECRET, "interfere", "interfere-webhook", {"data": empty})
    processes.wait_for(lambda: ca_bundle(api_server) != known)
    processes.wait_for(is_gated)


def test_the_cron_job_releases_every_pod_when_the_controller_is_gone_for_good(
    api_server: ApiServer, processes: Processes, tmp_path: Path
) -> None:
    """The CronJob's own arguments, every 5 s instead of every 60: a pod waits for its window, for the next run, and for
    that run."""
    window_s, every_s, pods = 5.0, 5.0, 12
    two_nodes(api_server, "dra")
    (job,) = manifests("CronJob")
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert (job["spec"]["schedule"], job["spec"]["concurrencyPolicy"]) == ("* * * * *", "Forbid")
    config = tmp_path / "kubernetes.toml"
    config.write_text(f'mode = "gate"\nwindow_s = {window_s}\ninterval_s = 1.0\ndevice_class = "{DRIVER}"\n')
    arguments = [str(config) if each.endswith(".toml") else each for each in container["args"][1:]]
    created_s: dict[str, float] = {}
    schedulable_s: dict[str, float] = {}
    begin_s, runs, rounds = time.monotonic(), list[float](), list[float]()
    while len(schedulable_s) < pods:
        assert time.monotonic() < begin_s + 2 * PATIENCE_S, processes.log.read_text()[-3000:]
        round_s = time.monotonic()
        for _ in range(3 if len(created_s) < pods else 0):
            name = f"p{len(created_s)}"
            api_server.add(POD, pod(name, WORKLOADS[len(created_s) % 4]))
            created_s[name] = time.monotonic()
        run_s, before = time.monotonic(), os.times()
        processes.start(*arguments).wait(PATIENCE_S)
        after, run_s = os.times(), time.monotonic() - run_s
        runs.append(after.children_user + after.children_system - before.children_user - before.children_system)
        claims = {row["metadata"]["name"] for row in api_server.rows(CLAIM)}
        for name, row in pods_by_name(api_server).items():
            if "schedulingGates" not in row["spec"] and f"{name}-gpu" in claims:
                schedulable_s.setdefault(name, time.monotonic())
        time.sleep(max(0.0, every_s - run_s))
        rounds.append(time.monotonic() - round_s)
    scheduler = StandInScheduler(api_server)
    scheduler.once()
    assert len(scheduler.bound) == 4, "a GPU for each: nobody decided who may share"
    longest_s = max(schedulable_s[name] - at_s for name, at_s in created_s.items())
    print(f"longest wait {longest_s:.1f} s: window {window_s:g} s, next run {every_s:g} s, run {max(runs):.1f} CPU s")
    assert longest_s <= window_s + 2 * max(rounds) + 2.0, "until the next run, and that run; creation in whole seconds"
    assert max(runs) < 30.0, "CPU s; 60 s until the next run of the real schedule, and 30 s for it: 90 s"


def test_an_uninstall_leaves_no_pod_gated(api_server: ApiServer, processes: Processes, tmp_path: Path) -> None:
    """The hook's own arguments, while a controller's claim selects a GPU that nobody has, and pods keep coming."""
    two_nodes(api_server, "dra")
    (configuration,) = manifests("MutatingWebhookConfiguration")
    api_server.add(WEBHOOK, configuration)
    for k in range(6):
        api_server.add(POD, pod(f"p{k}", WORKLOADS[k % 4]))
    (job,) = [each for each in documents(render("mode=gate").stdout) if each["kind"] == "Job"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    config = tmp_path / "kubernetes.toml"
    config.write_text(f'mode = "gate"\ndevice_class = "{DRIVER}"\n')
    arguments = [str(config) if each.endswith(".toml") else each for each in container["args"][1:]]
    process = processes.start(*arguments)
    processes.wait_for(lambda: api_server.rows(WEBHOOK) == [])
    api_server.add(POD, pod("late"))  # the API server knew the webhook for a moment longer
    assert process.wait(60) == 0, processes.log.read_text()
    assert [name for name, row in pods_by_name(api_server).items() if "schedulingGates" in row["spec"]] == []
    scheduler = StandInScheduler(api_server)
    scheduler.once()
    assert len(scheduler.bound) == 4, "a GPU for each"
    assert processes.start(*arguments).wait(60) == 0, "once more does no harm"
