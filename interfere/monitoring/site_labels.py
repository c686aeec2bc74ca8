"""Which device and which job a series is about, read from its labels.

Labels are those of dcgm-exporter (UUID, modelName, GPU_I_ID, pod, namespace, container). Prometheus renames a label of
the exporter that the scrape sets too: where a device series carries `exported_pod`, the plain `pod` is the exporter's.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from interfere.devices import device_type_of_product
from interfere.monitoring.dcgm import BY_WORKLOAD, EXPORTED_PREFIX, workload_of_pod
from interfere.monitoring.samples import SampleSeries
from interfere.monitoring.settings import MonitoringSettings

OLD_NAMES = {"pod": "pod_name", "namespace": "pod_namespace", "container": "container_name", "UUID": "uuid"}
JOB_LABELS = ("namespace", "pod")
CLUSTER = "cluster"  # by convention, where one Prometheus holds several clusters
# Labels that name the device, the scrape or the exporter, and so never a workload.
DEVICE_LABELS = frozenset(
    (
        *("__name__", "UUID", "uuid", "gpu", "device", "modelName", "Hostname", "pci_bus_id", "GPU_I_ID"),
        *("GPU_I_PROFILE", "vgpu", "pid", "instance", "job", "endpoint", "service", "prometheus", "replica"),
        *("DCGM_FI_DRIVER_VERSION", "err_code", "err_msg"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceIdentity:
    """The id, type and product name of a device; an instance of a partitioned device is a device of its own."""

    id: str
    type: str  # empty where neither settings nor labels name it
    product: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobIdentity:
    """The id and the workload of a job: a pod, or where there are no pods the value of the label that names the
    workload."""

    id: str
    workload: str


class SiteLabels:
    """Reads devices, jobs and workloads from the labels of a site's series."""

    def __init__(self, settings: MonitoringSettings, device_label_names: Iterable[str]) -> None:
        """Keep the settings; `device_label_names` are the names of all labels on the site's device series."""
        self._settings = settings
        names = frozenset(device_label_names)
        self._exported = any(name.startswith(EXPORTED_PREFIX) for name in names)
        self._job_labels = (CLUSTER, *JOB_LABELS) if CLUSTER in names else JOB_LABELS

    def device(self, series: SampleSeries) -> DeviceIdentity | None:
        """Return the device of a DCGM series; None for a series without a UUID."""
        labels = series.labels
        uuid = labels.get("UUID") or labels.get("uuid", "")
        product = labels.get("modelName", "")
        kind = self._settings.device_type or device_type_of_product(product)
        # An instance of a partitioned GPU is another device type than the whole GPU.
        device_type = "-".join(filter(None, (kind, labels.get("GPU_I_PROFILE")))) if kind else ""
        device_id = "/".join(filter(None, (uuid, labels.get("GPU_I_ID"))))
        return DeviceIdentity(id=device_id, type=device_type, product=product) if uuid else None

    def job(self, series: SampleSeries) -> JobIdentity | None:
        """Return the job of a DCGM series; None where the series is about the device alone."""
        pod = self._device_label(series.labels, "pod")
        job_id = (
            "/".join(filter(None, (self._device_label(series.labels, name) for name in self._job_labels)))
            if pod
            else ""
        )
        by = self._settings.by.split("+")
        names = [pod if name == BY_WORKLOAD else self._device_label(series.labels, name) for name in by]
        if not all(names):
            return None
        default = "/".join(
            workload_of_pod(name) if label == BY_WORKLOAD else name for label, name in zip(by, names, strict=True)
        )
        named = self._settings.workloads
        workload = named.workload("/".join(names)) or named.workload(default) if named is not None else ""
        return JobIdentity(id=job_id or default, workload=workload or default)

    def progress_keys(self, series: SampleSeries) -> tuple[str, ...]:
        """Return the label values by which a device series is joined to progress series, in the order of the mapped
        labels."""
        return tuple(self._device_label(series.labels, name) for name, _ in self._label_map)

    def progress_labels(self, series: SampleSeries) -> tuple[str, ...]:
        """Return the label values by which a progress series is joined to device series; "" for a label that the series
        lacks."""
        return tuple(
            series.labels.get(EXPORTED_PREFIX + name) or series.labels.get(name, "") for _, name in self._label_map
        )

    def missing_labels(self, device_label_names: Collection[str]) -> tuple[str, ...]:
        """Return the labels that the settings name for jobs on devices, and that no device series carries."""
        named = [name for name in self._settings.by.split("+") if name != BY_WORKLOAD]
        named += [name for name, _ in self._settings.label_map]
        return tuple(
            name
            for name in named
            if not {name, EXPORTED_PREFIX + name, OLD_NAMES.get(name, name)} & set(device_label_names)
        )

    @property
    def _label_map(self) -> tuple[tuple[str, str], ...]:
        return self._settings.label_map or tuple((name, name) for name in self._job_labels)

    def _device_label(self, labels: Mapping[str, str], name: str) -> str:
        exported = labels.get(EXPORTED_PREFIX + name, "")
        if exported or (self._exported and name in (*JOB_LABELS, "container")):
            return exported
        return labels.get(name) or labels.get(OLD_NAMES.get(name, name), "")


def matching_jobs(wanted: tuple[str, ...], job_ids_by_key: Mapping[tuple[str, ...], set[str]]) -> frozenset[str]:
    """Return the jobs whose labels equal `wanted`. An empty value in `wanted` matches every value of the label."""
    if all(wanted):
        return frozenset(job_ids_by_key.get(wanted, ()))
    if not any(wanted):
        return frozenset()
    return frozenset(
        job_id
        for key, job_ids in job_ids_by_key.items()
        if all(not value or value == of_job for value, of_job in zip(wanted, key, strict=True))
        for job_id in job_ids
    )


def recurring_labels(series: Sequence[SampleSeries], jobs: Mapping[int, JobIdentity]) -> tuple[tuple[str, int], ...]:
    """Return the labels of device series whose values recur over several jobs, with the number of values; the best
    first.

    `jobs` holds the job of each series by the index of the series. A label with one value on all series names no
    workload.
    """
    jobs_of_value: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for k, job in jobs.items():
        for name, value in series[k].labels.items():
            if name not in DEVICE_LABELS and value:
                jobs_of_value[name][value].add(job.id)
    recurring = {
        name: (sum(len(ids) > 1 for ids in by_value.values()) / len(by_value), len(by_value))
        for name, by_value in jobs_of_value.items()
    }
    ranked = sorted(recurring.items(), key=lambda item: (-item[1][0], -item[1][1], item[0]))
    return tuple((name, values) for name, (share, values) in ranked if share >= 0.5 and values > 1)
