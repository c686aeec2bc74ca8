"""Where samples come from: saved answers and addresses that cannot be read are one clear error each."""

import base64
import json
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from interfere.commands.monitoring.audit import app
from interfere.errors import InterfereError, InvalidInputError, TableError, UnavailableError
from interfere.monitoring.prometheus import PrometheusSource
from interfere.monitoring.samples import SampleSeries
from interfere.monitoring.saved_answers import SavedAnswers
from interfere.monitoring.settings import MonitoringSettings
from tests.monitoring.monitored_site import answer, counter, gauge, write

UTIL = "DCGM_FI_DEV_GPU_UTIL"
GAUGE = gauge(UTIL, "a", range(20), 50)


def test_saved_parts_of_one_series_are_one_series(tmp_path: Path) -> None:
    write(tmp_path / "site", answer(gauge(UTIL, "a", range(12), 50)), "1.json")
    write(tmp_path / "site", answer(gauge(UTIL, "a", range(8, 20), 50), counter("a", [(range(20), 4.0)])), "2.json")
    source = SavedAnswers(tmp_path / "site", MonitoringSettings(progress="train_steps_total"))
    block = source.read(source.first_s(), source.now_s())
    assert [len(series.times_s) for series in (*block.device, *block.progress)] == [20, 20]
    assert source.now_s() - source.first_s() == 19 * 15.0


def test_the_saved_answer_of_an_expression_has_no_name(tmp_path: Path) -> None:
    rate = counter("a", [(range(20), 4.0)])
    del rate["metric"]["__name__"]
    write(tmp_path, answer(GAUGE, rate))
    expression = MonitoringSettings(progress="rate(train_steps_total[1m])")
    assert len(SavedAnswers(tmp_path, expression).read(0.0, 2e9).progress) == 1


@pytest.mark.parametrize(
    ("document", "progress", "part"),
    [
        (answer(counter("a", [(range(9), 1.0)])), "train_steps_total", "no DCGM metric"),
        (answer(GAUGE), "train_steps_total", "no series of the job counter"),
        (answer(GAUGE), 'train_steps_total{team="x"}', "told apart by name"),
        ({"status": "error", "error": "timed out"}, "", "not a successful answer"),
        ("[1, 2", "", "not valid JSON"),
    ],
)
def test_answers_that_cannot_be_used_are_refused(tmp_path: Path, document: object, progress: str, part: str) -> None:
    path = write(tmp_path, document)
    with pytest.raises((TableError, InvalidInputError), match=part) as caught:
        SavedAnswers(path, MonitoringSettings(progress=progress))
    assert caught.value.remedy


def test_samples_are_sorted_and_values_that_are_none_are_left_out() -> None:
    times_s, values = np.array([3.0, 1.0, 2.0, 2.0, 4.0]), np.array([3.0, 1.0, 9.0, 2.0, np.nan])
    series = SampleSeries.from_samples("x", {}, times_s, values)
    assert series.times_s.tolist() == [1.0, 2.0, 3.0]
    assert series.values.tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(InvalidInputError, match="must rise"):
        SampleSeries(name="x", labels={}, times_s=times_s, values=np.zeros(5))


class Guarded(BaseHTTPRequestHandler):
    """Answers like a proxy in front of Prometheus: it wants a password, and can break in several ways."""

    wanted, status, body, failures = "", 200, b"", 0

    def do_POST(self) -> None:
        if Guarded.failures:
            Guarded.failures -= 1
            self.close_connection = True
            return
        allowed = self.headers.get("Authorization", "") == self.wanted
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.status if allowed else 401)
        self.end_headers()
        self.wfile.write(self.body if allowed else b"who are you?")

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def guarded() -> Iterator[str]:
    Guarded.status, Guarded.body = 200, json.dumps({"status": "success", "data": {"result": [0, "42.5"]}}).encode()
    with socketserver.TCPServer(("127.0.0.1", 0), Guarded) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_password_in_the_address_and_a_token_in_a_file_are_sent_and_never_shown(guarded: str, tmp_path: Path) -> None:
    Guarded.wanted = "Basic " + base64.b64encode(b"ops:s3cret").decode()
    source = PrometheusSource(f"http://ops:s3cret@{guarded}/", MonitoringSettings())
    assert source.now_s() == 42.5
    assert source.url == f"http://{guarded}"
    (tmp_path / "token").write_text("abc\n")
    Guarded.wanted = "Bearer abc"
    assert PrometheusSource(f"http://{guarded}", MonitoringSettings(), token_file=tmp_path / "token").now_s() == 42.5
    with pytest.raises(InvalidInputError, match="refuses access"):
        PrometheusSource(f"http://{guarded}", MonitoringSettings()).now_s()
    with pytest.raises(InvalidInputError, match="token cannot be read"):
        PrometheusSource(f"http://{guarded}", MonitoringSettings(), token_file=tmp_path / "none")


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (503, b"<html>", UnavailableError),
        (500, b'{"error": "out of memory"}', UnavailableError),
        (422, b'{"error": "too many samples"}', InvalidInputError),
        (200, b"<html>welcome</html>", UnavailableError),
        (200, b'{"status": "error"}', UnavailableError),
        (200, b'{"status": "success", "data": []}', UnavailableError),
    ],
)
def test_what_may_pass_later_is_unavailable_and_what_will_not_is_invalid(
    guarded: str, status: int, body: bytes, error: type[InterfereError]
) -> None:
    Guarded.wanted, Guarded.status, Guarded.body = "", status, body
    with pytest.raises(error) as caught:
        PrometheusSource(f"http://{guarded}", MonitoringSettings()).now_s()
    assert caught.value.remedy


def test_a_request_that_failed_is_made_again_as_often_as_was_asked(guarded: str) -> None:
    Guarded.wanted, Guarded.failures = "", 1
    assert PrometheusSource(f"http://{guarded}", MonitoringSettings(), tries=2).now_s() == 42.5
    Guarded.failures = 1
    with pytest.raises(UnavailableError):
        PrometheusSource(f"http://{guarded}", MonitoringSettings()).now_s()


def test_the_command_needs_one_source(tmp_path: Path) -> None:
    for options in ([], ["--prometheus", "http://x", "--from-files", str(tmp_path)]):
        result = CliRunner().invoke(app, options)
        assert result.exit_code == 2
        assert "either" in result.output
