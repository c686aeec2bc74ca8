"""The dashboard of a real server with 200 real decisions, in a real browser."""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from playwright.sync_api import expect as eventually

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.dashboard.pages import MAX_ROWS, overview
from interfere.records import Device, Job, Limits, Snapshot
from interfere.reports.html_page import html_page
from interfere.serving.server import RunningServer, start_server
from interfere.store.observed_table import counted_windows, is_in_company, pair_losses
from tests.dashboard.axe import need
from tests.models import DEVICE_TYPE, WORKLOADS, expected, publish
from tests.serving.test_observations import window
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.journey
DECISIONS = 200
SIZES = {"wide": {"width": 1280, "height": 900}, "narrow": {"width": 390, "height": 844}}
NASTY = '<img src=x onerror="alert(1)">'
PATHS = ("/", "/predictions", "/models")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = start_server(settings_in(tmp_path_factory.mktemp("dashboard")))
    yield running
    running.stop()


def settings_in(folder: Path) -> Settings:
    """A model to serve, and a port that the system chooses."""
    work = folder / "work"
    return Settings(model=publish(folder / "model"), work=work, port=0, grace_s=1.0, decision_workers=0, metrics_port=0)


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[PolicyClient]:
    """A client of a server that has decided 200 times and has observed every pair."""
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        for k in range(DECISIONS):
            client.match(decided(k))
        names = [name for name in WORKLOADS if name != "train"]
        client.observe(
            [
                window(f"{victim}-{name}-{k}", victim, name, slowdown=expected(victim, name) * (1 + 0.02 * k))
                for victim in names
                for name in names
                for k in range(3)
            ]
        )
        yield client


def decided(k: int) -> Snapshot:
    """Five jobs for three devices, one of which holds a job that nobody may join."""
    pending = tuple(Job(id=f"j{k}-{n}", workload=WORKLOADS[n % 4]) for n in range(5))
    resident = Job(id=f"{NASTY}{k}", workload="gemm")
    devices = (
        Device(id="d0", type=DEVICE_TYPE, residents=(resident,)),
        *(Device(id=f"d{n}", type=DEVICE_TYPE) for n in (1, 2)),
    )
    return Snapshot(pending=pending, devices=devices, now_s=float(k), limits=Limits.of(max_slowdown=1.05))


@pytest.fixture(scope="module")
def address(client: PolicyClient) -> Iterator[str]:
    yield from started(client.target)


def started(target: str) -> Iterator[str]:
    """Where a new dashboard of this server answers, started as its users do."""
    command = (sys.executable, "-m", "interfere", "dashboard", "--target", target, "--port", "0")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
            assert found, line + process.stderr.read()
            yield found.group()
        finally:
            process.terminate()
            assert process.wait(PATIENCE_S) in {0, -15}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not (chromium := shutil.which("chromium")):
        (pytest.fail if os.environ.get("REQUIRE_ALL") else pytest.skip)("chromium is missing: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser, address: str) -> Iterator[Callable[..., Page]]:
    """Open a path of the dashboard; at the end nothing was written to the console and no request failed."""
    contexts, complaints = [], []

    def opened(path: str, size: str = "wide", scheme: str = "light", **options: object) -> Page:
        context = browser.new_context(viewport=SIZES[size], color_scheme=scheme, **options)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.goto(address + path, timeout=1000 * PATIENCE_S)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not complaints


def decision_pages(client: PolicyClient) -> list[str]:
    state = client.scope("default")
    jobs = [state.waiting[0].job_id, next(job.job_id for device in state.devices for job in device.jobs if job.planned)]
    asked = [{"scope": "default", "id": state.decision_id, "job": job} for job in ("", *jobs)]
    return [f"/decision?{urlencode(query)}" for query in asked]


def test_numbers_are_those_of_the_rpcs(client: PolicyClient, open_page: Callable[..., Page]) -> None:
    page = open_page("/")
    state = client.scope("default")
    used = [device for device in state.devices if device.jobs]
    tiles = page.locator("#now .tiles b").all_inner_texts()
    placed = sum(len(device.jobs) for device in used)
    assert tiles[:3] == [f"{len(used)} of {len(state.devices)}", str(placed), str(len(state.waiting))]
    rows = page.locator("#devices tbody tr").all()
    told = [[cell.inner_text() for cell in row.locator("th, td").all()][:3] for row in rows]
    assert told == [[device.device_id, device.device_type, job.job_id] for device in used for job in device.jobs]
    queue = [row.locator("th, td").all_inner_texts() for row in page.locator("#queue tbody tr").all()]
    assert [(row[0], row[3]) for row in queue] == [(job.job_id, job.reason) for job in state.waiting]
    listed = client.decisions(limit=100).decisions
    shown = [row.locator("th, td").all_inner_texts() for row in page.locator("#decisions tbody tr").all()]
    assert [row[0] for row in shown] == [each.decision_id for each in listed[:20]]
    for row, each in zip(shown, listed, strict=False):
        assert row[2:6] == [str(n) for n in (each.started_alone, each.started_shared, each.waiting, each.displaced)]
    assert len(listed) == 100


def test_a_decision_is_told_with_its_alternatives(client: PolicyClient, open_page: Callable[..., Page]) -> None:
    page = open_page("/")
    page.locator("#queue tbody a").first.click()
    page.wait_for_url("**/decision?*")
    state = client.scope("default")
    explanation = client.explain(state.decision_id, state.waiting[0].job_id, scope="default")
    assert explanation.action.reason in page.locator("#job").inner_text()
    refused = page.locator("#job li").all_inner_texts()
    assert len(refused) == len(explanation.refused) > 0
    (found,) = client.decisions(limit=1).decisions
    assert page.locator("#numbers .tiles b").all_inner_texts()[2] == str(found.waiting)


def test_predictions_stand_beside_what_was_measured(client: PolicyClient, open_page: Callable[..., Page]) -> None:
    page = open_page("/predictions")
    log = client.observation_log(limit=1000)
    windows = [one for one in counted_windows(log.entries[::-1]) if is_in_company(one)]
    assert len(windows) == 27
    rows = {
        tuple(row.locator("th, td").all_inner_texts()[:3]): row.locator("th, td").all_inner_texts()
        for row in page.locator("#measured tbody tr").all()
    }
    for victim in ("infer", "gemm", "stream"):
        answer = client.predict([victim, "gemm"], pairs=[(0, 1)]).prediction
        told = rows[victim, "gemm", DEVICE_TYPE]
        assert told[5].startswith(f"{answer.median[0]:.2f}")
    worst = page.locator("#losses tbody tr").first.locator("th, td").all_inner_texts()
    loss, *_ = pair_losses(windows)
    assert worst[:2] == [loss.victim, " + ".join(loss.company)]
    assert page.locator("#measured svg .symbol").count() >= 27


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_pages_fit_and_are_accessible(
    client: PolicyClient, open_page: Callable[..., Page], size: str, scheme: str
) -> None:
    axe = need().read_text(encoding="utf-8")
    pictures = Path(os.environ["PICTURES"]) if os.environ.get("PICTURES") else None
    for k, path in enumerate((*PATHS, *decision_pages(client))):
        page = open_page(path, size, scheme, bypass_csp=True)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        page.evaluate(axe)
        violations = page.evaluate("axe.run().then((result) => result.violations)")
        assert not violations, f"{path}: {json.dumps(violations, indent=1)[:2000]}"
        if pictures:
            page.screenshot(path=pictures / f"{k}-{size}-{scheme}.png", full_page=True)


def test_a_decision_appears_without_a_reload(client: PolicyClient, open_page: Callable[..., Page]) -> None:
    page = open_page("/")
    page.evaluate("window.before = document.querySelector('nav')")
    page.locator("#decisions a").first.focus()
    client.match(decided(DECISIONS))
    newest = client.scope("default").decision_id
    eventually(page.locator("#decisions tbody th").first).to_have_text(newest, timeout=1000 * PATIENCE_S)
    assert page.evaluate("window.before === document.querySelector('nav')")  # the page is the same one
    assert page.evaluate("document.activeElement.closest('#decisions') !== null")
    assert "as of" in page.locator("nav").inner_text()


def test_every_text_is_text(client: PolicyClient, open_page: Callable[..., Page]) -> None:
    page = open_page("/")
    assert NASTY in page.locator("#devices").inner_text()
    assert page.locator("img").count() == 0


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [
        ("/", "evil.example", 400),  # a name that its owner lets point to this host
        ("/events/", "evil.example", 400),
        ("/nothing", "127.0.0.1", 404),
        ("/decision?id=nobody&job=j", "127.0.0.1", 404),
        ("/?scope=nobody", "localhost", 200),
    ],
)
def test_requests_that_are_refused(address: str, path: str, host: str, status: int) -> None:
    request = urllib.request.Request(address + path, headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            found, headers = answer.status, answer.headers
    except urllib.error.HTTPError as error:
        found, headers = error.code, error.headers
    assert found == status
    if host == "127.0.0.1" and path != "/nothing":
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]


def test_nothing_can_be_changed(address: str) -> None:
    request = urllib.request.Request(f"{address}/", data=b"x", method="POST")
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(request, timeout=PATIENCE_S)


def test_a_server_that_is_away_is_told_and_found_again(browser: Browser, tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    first = start_server(settings)
    for address in started(first.address):
        page = browser.new_page()
        page.goto(address)
        eventually(page.locator("h1")).to_have_text("Scope default")
        first.stop()
        eventually(page.locator("h1")).to_have_text("The server does not answer", timeout=1000 * PATIENCE_S)
        port = int(first.address.rpartition(":")[2])
        again = start_server(replace(settings, port=port))
        eventually(page.locator("h1")).to_have_text("Scope default", timeout=1000 * PATIENCE_S)
        again.stop()
        page.close()


def test_a_page_of_a_large_cluster_is_bounded(client: PolicyClient) -> None:
    state = client.scope("default")
    device = next(device for device in state.devices if device.jobs)
    large = replace(state, devices=(device,) * (MAX_ROWS + 7))
    page = html_page(overview(client.scopes(), "default", large, client.decisions(), client.model()))
    assert page.count("<tr>") <= MAX_ROWS + 50
    assert "7 rows more" in page
