"""A simulated site with a known truth: devices shared by pods, planted slowdowns, and the faults of real monitoring.

Pods come and go (a Deployment's pods under new names), restart (their counters begin again), load before their first
step; exporters, counters and the whole Prometheus miss scrapes. What may be concluded from the samples, and what not,
is computed here from the plan alone, without the code under test.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from interfere.monitoring.samples import SampleBlock, SampleSeries

INTERVAL_S = 15.0
START_S = 1_760_000_000.0
PRODUCT, DEVICE_TYPE = "NVIDIA A100-SXM4-80GB", "a100-80gb"
BASE_RATE = {"llm-train": 4.0, "bert-serve": 12.0, "resnet": 9.0, "etl-gather": 6.0, "asr": 7.0, "recsys": 15.0}
WORKLOADS = tuple(BASE_RATE)
WORST = ("etl-gather", "llm-train")  # victim, neighbour
EXCEPTIONS = {WORST: 3.4, WORST[::-1]: 1.7}  # together they make less progress than one of them alone
NOISE_SD = 0.02  # of the log rate, from one time of constant company to the next
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
Span = tuple[float, float]


def planted_slowdown(victim: str, neighbour: str) -> float:
    """The slowdown of one workload beside another: a sensitivity times a harm, but for one pair."""
    if (victim, neighbour) in EXCEPTIONS:
        return EXCEPTIONS[victim, neighbour]
    sensitivity = {"llm-train": 0.15, "bert-serve": 0.3, "resnet": 0.1, "etl-gather": 0.35, "asr": 0.2, "recsys": 0.05}
    harm = {"llm-train": 0.35, "bert-serve": 0.1, "resnet": 0.25, "etl-gather": 0.15, "asr": 0.05, "recsys": 0.3}
    return float(np.exp(sensitivity[victim] + harm[neighbour]))


@dataclass(slots=True)
class Pod:
    """One pod on one device."""

    name: str
    workload: str
    device: int
    start_s: float
    end_s: float
    phase_s: float  # of the scrapes of its counter
    first_step_s: float  # until then it loads
    down: list[Span] = field(default_factory=list)  # its process is away; the counter begins again after it
    missed: list[Span] = field(default_factory=list)  # its counter was not scraped
    steps_at: tuple[np.ndarray, np.ndarray] = (np.zeros(0), np.zeros(0))  # times, cumulative steps; never reset


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedWindow:
    """A time in which nothing changed on a device: what an observation may cover."""

    device: int
    start_s: float
    end_s: float
    pods: frozenset[str]


class SimulatedSite:
    """Some hours of a site."""

    def __init__(
        self, *, seed: int = 0, hours: float = 6.0, devices: int = 4, start_s: float = START_S, unit: float = 1.0
    ) -> None:
        """`unit` scales the time of everything but `hours`: at 1/30 a scrape is half a second, and a minute two."""
        self._rng = np.random.default_rng(seed)
        self.start_s, self.end_s = start_s, start_s + hours * 3600
        self.devices = devices
        self._unit, self.interval_s = unit, INTERVAL_S * unit
        self.device_phase_s = self._rng.uniform(0, self.interval_s, devices)
        self.exporter_down: list[list[Span]] = [[] for _ in range(devices)]
        self.prometheus_down: list[Span] = []
        self.pods: list[Pod] = []
        for device in range(devices):
            for _ in range(2):
                self._fill_slot(device)
        self._add_faults()
        for pod in self.pods:
            self._run(pod)

    # --- the plan ---------------------------------------------------------------------------------------------------

    def _fill_slot(self, device: int) -> None:
        unit = self._unit
        longest_s = min(9000.0 * unit, (self.end_s - self.start_s) / 2)
        at_s = self.start_s + self._rng.uniform(0, min(1200 * unit, longest_s / 2))
        while at_s < self.end_s - 120 * unit:
            workload = WORKLOADS[self._rng.integers(len(WORKLOADS))]
            template = "".join(self._rng.choice(list(ALPHABET), 9))
            for _ in range(
                1 + int(self._rng.random() < 0.3)
            ):  # a Deployment's next pod comes at once, under a new name
                if at_s > self.end_s - 120 * unit:
                    break
                end_s = min(self.end_s, at_s + float(np.exp(self._rng.uniform(np.log(70 * unit), np.log(longest_s)))))
                name = f"{workload}-{template}-{''.join(self._rng.choice(list(ALPHABET), 5))}"
                loads = 90.0 * unit if self._rng.random() < 0.1 and end_s - at_s > 600 * unit else 0.0
                phase_s = float(self._rng.uniform(0, self.interval_s))
                self.pods.append(Pod(name, workload, device, at_s, end_s, phase_s, at_s + loads))
                at_s = end_s + 1.0 * unit
            at_s += unit * float(self._rng.choice([1.0, 30.0, 600.0, 1500.0]))

    def _add_faults(self) -> None:
        unit = self._unit
        hours = (self.end_s - self.start_s) / 3600 / unit
        for device in range(self.devices):
            self.exporter_down[device] = self._spans(0.15 * hours, 60, 500)
        self.prometheus_down = self._spans(0.05 * hours, 100, 700)
        for pod in self.pods:
            length_s = pod.end_s - pod.start_s
            if length_s > 900 * unit and self._rng.random() < 0.35:
                at_s = float(self._rng.uniform(pod.first_step_s + 150 * unit, pod.end_s - 150 * unit))
                down_s = unit * float(self._rng.choice([2.0, 25.0, 90.0]))
                pod.down.append((at_s, at_s + down_s))
            if length_s > 900 * unit and self._rng.random() < 0.25:
                at_s = float(self._rng.uniform(pod.start_s + 100 * unit, pod.end_s - 300 * unit))
                pod.missed.append((at_s, at_s + unit * float(self._rng.uniform(60, 200))))

    def _spans(self, expected: float, low_s: float, high_s: float) -> list[Span]:
        high_s = min(high_s * self._unit, (self.end_s - self.start_s) / 4)
        starts = sorted(self._rng.uniform(self.start_s, self.end_s - high_s, self._rng.poisson(expected)))
        return [(start, start + float(self._rng.uniform(min(low_s * self._unit, high_s), high_s))) for start in starts]

    def _run(self, pod: Pod) -> None:
        """How many steps the pod has made at each change of what runs beside it."""
        others = [each for each in self.pods if each.device == pod.device and each is not pod]
        changes = {pod.start_s, pod.end_s, pod.first_step_s, *(t for span in pod.down for t in span)}
        changes |= {t for o in others for t in (o.start_s, o.end_s, o.first_step_s, *(t for s in o.down for t in s))}
        times_s = sorted(t for t in changes if pod.start_s <= t <= pod.end_s)
        steps = [0.0]
        noise = {}
        for low, high in pairwise(times_s):
            middle = (low + high) / 2
            beside = frozenset(o.name for o in others if _steps_now(o, middle))
            factor = noise.setdefault(beside, float(np.exp(self._rng.normal(0, NOISE_SD))))
            rate = BASE_RATE[pod.workload] * factor if _steps_now(pod, middle) else 0.0
            for other in others:
                rate /= planted_slowdown(pod.workload, other.workload) if other.name in beside else 1.0
            steps.append(steps[-1] + rate * (high - low))
        pod.steps_at = np.array(times_s), np.array(steps)

    # --- what may be concluded --------------------------------------------------------------------------------------

    def expected_windows(self, min_s: float = 60.0) -> list[ExpectedWindow]:
        """Every time of at least `min_s` in which the same pods were seen on a device and none of them was away."""
        found = []
        for device in range(self.devices):
            pods = [pod for pod in self.pods if pod.device == device]
            blind = self.exporter_down[device] + self.prometheus_down
            blind_pods = {pod.name: pod.down + pod.missed for pod in pods}
            changes = {t for pod in pods for t in (pod.start_s, pod.end_s)} | {t for span in blind for t in span}
            changes |= {t for spans in blind_pods.values() for span in spans for t in span}
            for low, high in pairwise(sorted(changes)):
                middle = (low + high) / 2
                here = frozenset(pod.name for pod in pods if pod.start_s <= middle < pod.end_s)
                away = any(inside(middle, blind_pods[name]) for name in here)
                if here and not away and not inside(middle, blind):
                    last = found[-1] if found else None
                    same = last and (last.device, last.end_s, last.pods) == (device, low, here)
                    start_s = found.pop().start_s if same else low  # a change of a pod that is not here
                    found.append(ExpectedWindow(device=device, start_s=start_s, end_s=high, pods=here))
        return [window for window in found if window.end_s - window.start_s >= min_s]

    # --- the samples ------------------------------------------------------------------------------------------------

    def block(self) -> SampleBlock:
        """All samples as a Prometheus would hold them."""
        return SampleBlock(device=tuple(self._device_series()), progress=tuple(self._counters()))

    def _device_series(self) -> Iterator[SampleSeries]:
        for device in range(self.devices):
            scrapes = self._scrapes(self.device_phase_s[device], self.start_s, self.end_s, self.exporter_down[device])
            pods = [pod for pod in self.pods if pod.device == device]
            idle = np.array([not any(p.start_s <= t < p.end_s for p in pods) for t in scrapes])
            if idle.any():
                yield self._gauge("DCGM_FI_DEV_GPU_UTIL", device, {}, scrapes[idle], 0.0)
            for pod in pods:
                at_s = scrapes[(scrapes >= pod.start_s) & (scrapes < pod.end_s)]
                labels = {"namespace": "ml", "pod": pod.name, "container": "main"}
                size = 1000.0 * (1 + WORKLOADS.index(pod.workload))
                for name, value in (
                    ("DCGM_FI_DEV_GPU_UTIL", 90.0),
                    ("DCGM_FI_PROF_SM_ACTIVE", 0.1 * (1 + WORKLOADS.index(pod.workload))),
                    ("DCGM_FI_DEV_FB_USED", size),
                ):
                    yield self._gauge(name, device, labels, at_s, value)

    def _counters(self) -> Iterator[SampleSeries]:
        for pod in self.pods:
            at_s = self._scrapes(pod.phase_s, pod.start_s, pod.end_s, pod.down + pod.missed)
            labels = {"namespace": "ml", "pod": pod.name, "app": pod.workload}
            yield SampleSeries.from_samples(
                "train_steps_total", {"__name__": "train_steps_total", **labels}, at_s, steps_shown(pod, at_s)
            )

    def _scrapes(self, phase_s: float, start_s: float, end_s: float, missed: list[Span]) -> np.ndarray:
        first = np.ceil((start_s - phase_s) / self.interval_s)
        times_s = phase_s + self.interval_s * np.arange(first, np.ceil((end_s - phase_s) / self.interval_s))
        keep = [not inside(t, missed + self.prometheus_down) for t in times_s]
        return np.round(times_s[np.array(keep, dtype=bool)], 3)

    def _gauge(self, name: str, device: int, labels: dict[str, str], at_s: np.ndarray, value: float) -> SampleSeries:
        device_labels = {
            "__name__": name,
            "UUID": self.uuid(device),
            "gpu": str(device % 4),
            "modelName": PRODUCT,
            "Hostname": f"node-{device // 4}",
        }
        return SampleSeries.from_samples(name, device_labels | labels, at_s, np.full(len(at_s), value))

    @staticmethod
    def uuid(device: int) -> str:
        """The UUID label of a device."""
        return f"GPU-{device:08d}-aaaa-bbbb-cccc-dddddddddddd"


def write_openmetrics(block: SampleBlock, path: Path) -> int:
    """Write all samples as `promtool tsdb create-blocks-from openmetrics` reads them; the number of series."""
    by_name: dict[str, list[SampleSeries]] = {}
    for series in (*block.device, *block.progress):
        by_name.setdefault(series.name, []).append(series)
    with path.open("w", encoding="ascii") as out:
        for name, every in by_name.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            out.write(f"# TYPE {name.removesuffix('_total')} {kind}\n")
            for series in every:
                labels = ",".join(f'{key}="{value}"' for key, value in series.labels.items() if key != "__name__")
                for time_s, value in zip(series.times_s.tolist(), series.values.tolist(), strict=True):
                    out.write(f"{name}{{{labels}}} {value:.10g} {time_s:.3f}\n")
        out.write("# EOF\n")
    return sum(map(len, by_name.values()))


def steps_shown(pod: Pod, at_s: np.ndarray) -> np.ndarray:
    """What the counter of a pod shows at some times: it begins again after each restart."""
    restarts = np.array([pod.start_s, *(end for _, end in pod.down)])
    since = restarts[np.searchsorted(restarts, at_s, "right") - 1] if len(at_s) else at_s
    return np.floor(np.interp(at_s, *pod.steps_at) - np.interp(since, *pod.steps_at))


def inside(time_s: float, spans: list[Span]) -> bool:
    return any(low <= time_s < high for low, high in spans)


def _steps_now(pod: Pod, time_s: float) -> bool:
    return pod.first_step_s <= time_s < pod.end_s and not inside(time_s, pod.down)
