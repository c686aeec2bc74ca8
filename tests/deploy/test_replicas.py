"""Replicas of the chart's server on one database: the objects, and real servers started by what they say."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kubernetes", reason="pip install -e '.[dev]'")

from interfere.client import PolicyClient
from interfere.records import ObservationResult
from tests.client.name_server import NameServer
from tests.deploy.manifests import DATABASE, documents, render
from tests.models import publish
from tests.serving.test_observations import window
from tests.store.postgres_server import running_postgres
from tests.waiting import PATIENCE_S, free_port, wait_until

ADDRESSES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
PASSWORD = "correct-horse"
CONFIG = ("server.identity.enabled=false",)


@pytest.fixture(scope="module")
def objects() -> list[dict[str, Any]]:
    return documents(render(*DATABASE, *CONFIG).stdout)


def named(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = (each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


def test_a_replica_goes_only_when_another_one_answers(objects: list[dict[str, Any]]) -> None:
    server = named(objects, "Deployment", "interfere-server")["spec"]
    pod, labels = server["template"]["spec"], server["selector"]["matchLabels"]
    (container,) = pod["containers"]
    assert server["replicas"] == 3
    assert server["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    grace_s, hard_stop_s = 5, 1  # of the server, see Settings.grace_s
    stopping_s = container["lifecycle"]["preStop"]["sleep"]["seconds"] + grace_s + hard_stop_s
    assert pod["terminationGracePeriodSeconds"] > stopping_s
    (spread,) = pod["topologySpreadConstraints"]
    budget = named(objects, "PodDisruptionBudget", "interfere-server")["spec"]
    headless = named(objects, "Service", "interfere-servers")["spec"]
    assert spread["labelSelector"]["matchLabels"] == labels == budget["selector"]["matchLabels"] == headless["selector"]
    assert (headless["clusterIP"], budget["maxUnavailable"]) == ("None", 1)
    assert not [each for each in objects if each["kind"] == "StatefulSet"]
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert volumes["store"]["emptyDir"] == {}
    assert volumes["models"]["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}
    assert volumes["database"]["secret"]["secretName"] == "database"
    assert {each["name"] for each in container["volumeMounts"]} <= volumes.keys()


def test_the_network_lets_the_servers_reach_names_and_the_database_alone(objects: list[dict[str, Any]]) -> None:
    (egress,) = named(objects, "NetworkPolicy", "interfere-server")["spec"]["egress"]
    assert [each["port"] for each in egress["ports"]] == [53, 53, 6432]
    values = ("server.database.address=postgresql://interfere@db/interfere",)
    (egress,) = named(documents(render(*values).stdout), "NetworkPolicy", "interfere-server")["spec"]["egress"]
    assert egress["ports"][-1] == {"port": 5432}


def test_one_replica_without_a_database_keeps_its_volume() -> None:
    objects = documents(render().stdout)
    assert named(objects, "StatefulSet", "interfere-server")["spec"]["volumeClaimTemplates"]
    names = {(each["kind"], each["metadata"]["name"]) for each in objects}
    assert not names & {("Service", "interfere-servers"), ("PodDisruptionBudget", "interfere-server")}


@pytest.fixture
def pods(objects: list[dict[str, Any]], tmp_path: Path) -> Iterator[Callable[[str, int], subprocess.Popen[str]]]:
    """Start what a container of the chart starts, with the mounts, addresses and ports of this host."""
    (container,) = named(objects, "Deployment", "interfere-server")["spec"]["template"]["spec"]["containers"]
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    publish(tmp_path / "claim" / "champion", version="claimed")
    running: list[subprocess.Popen[str]] = []
    with running_postgres() as postgres:
        database = postgres.new_guarded_database("interfere", PASSWORD)

        def start(address: str, port: int) -> subprocess.Popen[str]:
            work = tmp_path / address
            work.mkdir(exist_ok=True)
            if not (work / "models").exists():
                (work / "models").symlink_to(tmp_path / "claim")
            places = {
                "postgresql://interfere@db.example:6432/interfere?sslmode=require": database,
                "/var/run/secrets/database/password": str(password),
                "/var/lib/interfere": str(work),
                "9090": "-1",
            }
            environment = dict(os.environ)
            for each in container["env"]:
                value = each["value"]
                for place, here in places.items():
                    value = value.replace(place, here)
                environment[each["name"]] = value
            del environment["INTERFERE_MODEL_DIGEST"]  # of no model of this test
            arguments = [{"::": address, "50051": str(port)}.get(each, each) for each in container["args"]]
            command = [sys.executable, "-m", "interfere", *arguments]
            running.append(subprocess.Popen(command, env=environment, text=True, stderr=subprocess.PIPE))
            return running[-1]

        yield start
        for process in running:
            process.kill()
            process.communicate()


def test_what_the_chart_says_starts_servers_that_share_one_log_and_are_replaced_without_a_failed_call(
    objects: list[dict[str, Any]], pods: Callable[[str, int], subprocess.Popen[str]]
) -> None:
    port, names = free_port(), NameServer()
    config = named(objects, "ConfigMap", "interfere-config")["data"]["kubernetes.toml"]
    target = "dns:///interfere-servers.interfere.svc:50051"
    assert f'server = "{target}"' in config
    first, second, _ = (pods(address, port) for address in ADDRESSES[:2] + ADDRESSES[2:])
    here = target.replace("dns:///", f"dns://127.0.0.1:{names.port}/").replace("50051", str(port))
    told = 0

    def tell() -> None:
        nonlocal told
        (answer,) = client.observe([window(f"w{told}", "infer", "stream", slowdown=1.5)])
        assert answer.result is ObservationResult.APPLIED
        told += 1

    for address in ADDRESSES:
        with PolicyClient(f"{address}:{port}", timeout_s=PATIENCE_S) as each:
            each.wait_ready(PATIENCE_S)
            assert each.model().version == "claimed"
    names.addresses = ADDRESSES
    with PolicyClient(here, timeout_s=PATIENCE_S) as client:
        for _ in range(20):
            tell()
        for process, left in ((first, ADDRESSES[1:]), (second, ADDRESSES[2:])):
            names.addresses = left  # what preStop waits for
            process.terminate()
            while process.poll() is None:
                tell()
            for _ in range(10):
                tell()
        wait_until(lambda: client.model().online.observations == told, "the last one has learned what all were told")
    names.close()
