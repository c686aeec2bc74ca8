"""Reads samples from a Prometheus server over its HTTP API; nothing is written there.

Metrics are read as range vectors (`METRIC[1h]`), which hold every scraped sample with the time of its scrape. The
range-query API would evaluate at times of its own and show a series for five minutes after its end. Only an expression
is evaluated that way. One request a metric, each of a bounded size, keeps the memory small.
"""

import base64
import http.client
import json
import math
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from interfere.errors import InvalidInputError, LimitError, UnavailableError
from interfere.monitoring.dcgm import METRICS, NO_STEPS
from interfere.monitoring.samples import SampleBlock, SampleSeries
from interfere.monitoring.settings import MonitoringSettings

MAX_ANSWER_BYTES = 256 * 2**20  # of one request: nine million samples
MAX_POINTS = 10_000  # of one series in one range query; Prometheus refuses more than 11,000
DEVICE_METRICS = '{__name__=~"' + "|".join(METRICS) + '"}'
COUNTER_NAMES = ".+_(total|count|steps|step)"
MOMENTS = 8
CHECK = "check the address, and that the server runs"
RETRIED = (429, 500, 502, 503, 504)  # HTTP statuses after which the same request may succeed


class PrometheusSource:
    """A Prometheus server, or another server with its API (Thanos, Mimir, VictoriaMetrics). Implements SampleSource."""

    def __init__(
        self,
        url: str,
        settings: MonitoringSettings,
        *,
        timeout_s: float = 60.0,
        tries: int = 1,
        token_file: Path | None = None,
    ) -> None:
        """Keep the address and the credentials; nothing is requested yet.

        `token_file` holds a bearer token; a user and a password may be part of the address. A request without an answer
        is made up to `tries` times, after 1, 2, 4, ... seconds.
        """
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInputError("not the address of a Prometheus", value=url, remedy="such as http://host:9090")
        host = parts.netloc.rpartition("@")[2]
        self.url = urllib.parse.urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self._settings, self._timeout_s, self._tries = settings, timeout_s, tries
        self._headers = {"Accept": "application/json"}
        if parts.username:
            user = urllib.parse.unquote(f"{parts.username}:{parts.password or ''}")
            self._headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
        if token_file is not None:
            self._headers["Authorization"] = f"Bearer {_read_token(token_file)}"

    def now_s(self) -> float:
        """Return the time on the server's clock, which also times the samples."""
        return float(self._query("query", {"query": "time()"})["result"][1])

    def device_label_names(self) -> frozenset[str]:
        """Return the names of all labels that DCGM metrics carry."""
        return frozenset(self._request("labels", {"match[]": DEVICE_METRICS}))

    def read(self, start_s: float, end_s: float) -> SampleBlock:
        """Return all samples of devices and jobs from `start_s` to `end_s`."""
        device = [series for name in METRICS for series in self._samples(name, start_s, end_s)]
        progress = self.read_progress(start_s, end_s)
        return SampleBlock(device=tuple(device), progress=progress).between(start_s, end_s)

    def read_progress(self, start_s: float, end_s: float) -> tuple[SampleSeries, ...]:
        """Return the samples of the jobs' progress alone; none where the settings name no progress."""
        progress = self._settings.progress.strip()
        if not progress:
            found: list[SampleSeries] = []
        elif self._settings.progress_is_counter:
            found = self._samples(progress, start_s, end_s)
        else:
            found = self._evaluated(progress, start_s, end_s)
        return SampleBlock(progress=tuple(found)).between(start_s, end_s).progress

    def possible_counters(self, start_s: float, end_s: float) -> tuple[str, ...]:
        """Return names of counters that jobs on devices expose in a span of time, and that may count steps.

        Those of most jobs come first, over `MOMENTS` moments of the span.
        """
        jobs = "on (pod) group by (pod) (DCGM_FI_DEV_GPU_UTIL)"
        series = f'{{__name__=~"{COUNTER_NAMES}",__name__!~"{NO_STEPS}",pod!=""}} and {jobs}'
        query = f"count by (__name__) (group by (__name__, pod) ({series}))"
        found: Counter[str] = Counter()
        for time_s in np.linspace(start_s, end_s, MOMENTS + 1)[1:]:
            for each in self._query("query", {"query": query, "time": f"{time_s:.3f}"})["result"]:
                found[each["metric"]["__name__"]] += int(float(each["value"][1]))
        return tuple(sorted(found, key=lambda name: (-found[name], name)))

    def _samples(self, selector: str, start_s: float, end_s: float) -> list[SampleSeries]:
        milliseconds = math.ceil((end_s - start_s) * 1000) + 1
        query = {"query": f"{selector}[{milliseconds}ms]", "time": f"{end_s:.3f}"}
        return _series(self._query("query", query))

    def _evaluated(self, expression: str, start_s: float, end_s: float) -> list[SampleSeries]:
        """Return the values of an expression at whole multiples of the step."""
        step_s = self._settings.step_s
        first, last = math.ceil(start_s / step_s), math.floor(end_s / step_s)
        parts: dict[tuple[tuple[str, str], ...], list[SampleSeries]] = {}
        for low in range(first, last + 1, MAX_POINTS):
            high = min(last, low + MAX_POINTS - 1)
            query = {"query": expression, "start": low * step_s, "end": high * step_s, "step": step_s}
            for each in _series(self._query("query_range", {key: str(value) for key, value in query.items()})):
                parts.setdefault(tuple(sorted(each.labels.items())), []).append(each)
        return [
            SampleSeries.from_samples(
                "",
                dict(labels),
                np.concatenate([each.times_s for each in series]),
                np.concatenate([each.values for each in series]),
            )
            for labels, series in parts.items()
        ]

    def _query(self, path: str, parameters: dict[str, str]) -> dict[str, Any]:
        data = self._request(path, parameters)
        if not isinstance(data, dict):
            raise UnavailableError("not an answer of Prometheus", value=f"{self.url}: {data!r:.80}", remedy=CHECK)
        return data

    def _request(self, path: str, parameters: dict[str, str]) -> Any:
        """Return the data of an answer. Raises UnavailableError, InvalidInputError for a bad query, or LimitError."""
        for earlier in range(self._tries - 1):
            try:
                return self._request_once(path, parameters)
            except UnavailableError:
                time.sleep(2.0**earlier)
        return self._request_once(path, parameters)

    def _request_once(self, path: str, parameters: dict[str, str]) -> Any:
        url, body = f"{self.url}/api/v1/{path}", urllib.parse.urlencode(parameters).encode()
        request = urllib.request.Request(url, data=body, headers=self._headers)  # noqa: S310 - the scheme was checked
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as response:  # noqa: S310
                text = response.read(MAX_ANSWER_BYTES + 1)
        except urllib.error.HTTPError as error:
            raise self._refusal(error, parameters.get("query", path)) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise UnavailableError("Prometheus does not answer", value=f"{self.url}: {reason}", remedy=CHECK) from None
        if len(text) > MAX_ANSWER_BYTES:
            raise LimitError(
                f"an answer of Prometheus is larger than {MAX_ANSWER_BYTES >> 20} MiB",
                value=parameters.get("query", path),
                remedy="read less at a time: a smaller --cell",
            )
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or answer.get("status") != "success":
            remedy = "give the address of Prometheus itself, not of a page in front of it"
            raise UnavailableError("not an answer of Prometheus", value=f"{url}: {text[:80]!r}", remedy=remedy)
        return answer.get("data")

    def _refusal(self, error: urllib.error.HTTPError, query: str) -> InvalidInputError | UnavailableError:
        try:
            message = str(json.loads(error.read(10_000)).get("error", error.reason))
        except (ValueError, OSError, AttributeError, http.client.HTTPException):
            message = str(error.reason)
        if error.code in RETRIED:
            return UnavailableError(
                f"Prometheus cannot answer now (HTTP {error.code})", value=f"{self.url}: {message}", remedy="try again"
            )
        if error.code in (401, 403):
            return InvalidInputError(
                f"Prometheus refuses access (HTTP {error.code})", value=self.url, remedy="give --token-file"
            )
        remedy = "check the query given to --progress, and the address"
        return InvalidInputError(
            f"Prometheus refuses the query (HTTP {error.code}): {message}", value=query, remedy=remedy
        )


def _series(data: dict[str, Any]) -> list[SampleSeries]:
    """Return the series in an answer of Prometheus. Raises UnavailableError where the answer holds no matrix."""
    found = []
    try:
        for result in data["result"]:
            labels = {str(name): str(value) for name, value in result["metric"].items()}
            samples = result["values"]
            times_s = np.fromiter((float(time_s) for time_s, _ in samples), np.float64, len(samples))
            values = np.fromiter((float(value) for _, value in samples), np.float64, len(samples))
            found.append(SampleSeries.from_samples(labels.get("__name__", ""), labels, times_s, values))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UnavailableError("not an answer of Prometheus", value=f"{data!r:.80}", remedy=CHECK) from None
    return found


def _read_token(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError("the token cannot be read", value=f"{path}: {error}", remedy="give a file") from None
