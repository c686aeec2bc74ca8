"""The learned state of an online model as bytes and back, so that a start need not replay a long log of observations.

Law: a model restored from the state of another one answers, and goes on learning, as that one does.
"""

import gc
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.predict.online.belief_state import (
    BeliefState,
    DomainBelief,
    LevelShift,
    NuisanceEffect,
    NuisanceEffects,
    PairEvidence,
    PairObservation,
    Posterior,
    RecentWindow,
    ReporterRecord,
)
from interfere.predict.online.change_points import JobHistory, LevelTest
from interfere.predict.online.effects import Effects
from interfere.predict.online.noise import StreamNoise
from interfere.predict.online.prior import Floats, RolePrior, WorkloadKey
from interfere.predict.online.solo_rates import SoloRate
from interfere.predict.online.unseen_device import DeviceBelief, PairPoints
from interfere.predict.residual import OnlineModel
from interfere.records import Progress
from interfere.records.documents import from_json, to_json
from interfere.sharing_modes import parse_sharing_mode

FORMAT = 10  # raised whenever learning or this layout changes: states of an older format are then ignored
_BASIS = ("victims", "neighbours", "log_predicted")  # fields of `PairPoints`
_NUISANCES = (
    "reporters",
    "reporter_jobs",
    "reporters_lately",
    "devices",
    "devices_lately",
)  # fields of `NuisanceEffects`
_NUISANCE_SETS = ("seen_by_two", "on_two_devices", "compared_reporters", "compared_devices")
_POSTERIOR = ("inverse", "mean", "covariance")  # the others of `DeviceBelief`
_COUNTS = (
    "observation_count",
    "down_weighted_count",
    "alarm_count",
    "pair_count",
)


def dump_state(model: OnlineModel, *, facts: str = "") -> bytes:
    """The learned state as one .npz file without pickles. `facts`: a digest of the profiles it was learned with."""
    names, arrays = _NameTable(), dict[str, Any]()
    texts = _dump(model.state, names, arrays, "")
    texts |= {"facts": facts, "names": names.list()}
    arrays["texts"] = np.frombuffer(json.dumps(texts).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _dump(state: BeliefState, names: "_NameTable", arrays: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Add the arrays of a state, each under this prefix; return the rest of it as a JSON document."""
    # 1. Jobs.
    for role, posteriors in (("victim", state.as_victim), ("neighbour", state.as_neighbour)):
        arrays[f"{prefix}{role}_keys"] = names.rows(posteriors, 3)
        arrays[f"{prefix}{role}_mean"] = np.array([posterior.mean for posterior in posteriors.values()])
        arrays[f"{prefix}{role}_covariance"] = np.array([posterior.covariance for posterior in posteriors.values()])
    for table, width in (("own_shift", 3), ("harm_shift", 3), ("family_shift", 4)):
        shifts: Mapping[Any, LevelShift] = getattr(state, table)
        arrays[f"{prefix}{table}_keys"] = names.rows(shifts, width)
        arrays[f"{prefix}{table}"] = np.array([astuple(shift) for shift in shifts.values()]).reshape(-1, 3)
    # 2. Pairs.
    arrays[f"{prefix}pair_victims"] = names.rows(state.pairs, 3)
    arrays[f"{prefix}pair_counts"] = np.array([len(effects) for effects in state.pairs.values()], dtype=np.int64)
    arrays[f"{prefix}pair_neighbours"] = names.indices(name for effects in state.pairs.values() for name in effects)
    evidence = [of_pair for pairs in state.pairs.values() for of_pair in pairs.values()]
    arrays[f"{prefix}pairs"] = np.array(evidence).reshape(-1, len(PairEvidence._fields))
    # 3. Streams.
    arrays[f"{prefix}stream_keys"] = names.rows(((reporter, *key) for reporter, key in state.streams), 4)
    arrays[f"{prefix}streams"] = np.array([astuple(stream) for stream in state.streams.values()]).reshape(-1, 2)
    # 4. Device types that the model never saw.
    for k, device in enumerate(state.unseen_devices.values()):
        for name, array in _device_arrays(device).items():
            arrays[f"{prefix}device_{k}_{name}"] = array
    # 5. All else.
    return {
        "unprofiled": sorted(state.unprofiled),
        "of_new_family": sorted(state.of_new_family),
        "with_stand_in": sorted(state.with_stand_in),
        "histories": [
            [key, {name: astuple(test) for name, test in history.tests.items()}, history.window_counts]
            for key, history in state.histories.items()
        ],
        "unseen_devices": list(state.unseen_devices),
        "domains": [[key, _domain_document(domain)] for key, domain in state.domains.items()],
        "nuisances": [[key, _nuisance_document(effects)] for key, effects in state.nuisances.items()],
        "anchors": [
            [key, _dump(anchor, names, arrays, f"{prefix}anchor_{k}_")]
            for k, (key, anchor) in enumerate(state.anchors.items())
        ],
        "reporters": {name: astuple(record) for name, record in state.reporters.items()},
        "reporter_weights": state.reporter_weights,
        "solo_rates": [[key, rate.recent, rate.steps_per_s] for key, rate in state.solo_rates.items()],
        "pending": [to_json(window) for windows in state.pending.values() for window in windows],
        "counts": {name: getattr(state, name) for name in _COUNTS},
    }


def restore_state(model: OnlineModel, content: bytes) -> str:
    """Load a learned state into a model with the same prior that has learned nothing yet; its `facts`."""
    was_enabled = gc.isenabled()
    gc.disable()  # none of the millions of small objects made here is garbage, and looking for it doubles the time
    try:
        model.state, facts = _read_state(model.belief.effects, content)
    finally:
        if was_enabled:
            gc.enable()
    return facts


def _read_state(effects: Effects, content: bytes) -> tuple[BeliefState, str]:
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        texts = json.loads(arrays["texts"].tobytes())
        return _read(effects, arrays, texts, texts["names"], ""), str(texts["facts"])


def _read(
    effects: Effects, arrays: Mapping[str, Any], texts: Mapping[str, Any], names: Sequence[str], prefix: str
) -> BeliefState:
    """Return the state whose arrays stand under this prefix and whose other values are in a document."""
    state = BeliefState()
    _read_arrays(effects, state, arrays, texts, names, prefix)
    for key, tests, counts in texts["histories"]:
        state.histories[_key(key)] = JobHistory({name: LevelTest(*test) for name, test in tests.items()}, counts)
    for (device_type, mode), document in texts["domains"]:
        state.domains[device_type, mode] = _domain_from_document(document)
    for (device_type, mode), document in texts["nuisances"]:
        state.nuisances[device_type, mode] = _nuisances_from_document(document)
    for k, ((device_type, mode), document) in enumerate(texts["anchors"]):
        state.anchors[device_type, mode] = _read(effects, arrays, document, names, f"{prefix}anchor_{k}_")
    state.reporters.update({name: ReporterRecord(*record) for name, record in texts["reporters"].items()})
    state.reporter_weights.update(texts["reporter_weights"])
    for (workload, device_type), recent, rate in texts["solo_rates"]:
        state.solo_rates[workload, device_type] = SoloRate(tuple(recent), rate)
    for text in texts["pending"]:
        window = from_json(Progress, text)
        solo_key = window.workload, window.device_type
        state.pending[solo_key] = (*state.pending.get(solo_key, ()), window)
    for name in _COUNTS:
        setattr(state, name, texts["counts"][name])
    return state


def _read_arrays(
    effects: Effects,
    state: BeliefState,
    arrays: Mapping[str, Any],
    texts: Mapping[str, Any],
    names: Sequence[str],
    prefix: str,
) -> None:
    """Read what is stored of each job, pair and stream, and of device types without training data."""
    state.unprofiled.update((workload, device_type, mode) for workload, device_type, mode in texts["unprofiled"])
    state.of_new_family.update((workload, place, mode) for workload, place, mode in texts["of_new_family"])
    state.with_stand_in.update((workload, device_type) for workload, device_type in texts["with_stand_in"])

    def keys_of(array: str) -> list[Any]:
        return [tuple(names[k] for k in row) for row in arrays[f"{prefix}{array}"].tolist()]

    # 1. Jobs.
    effects.state.unprofiled.update(state.unprofiled)  # the priors of jobs depend on both
    effects.state.of_new_family.update(state.of_new_family)
    roles: tuple[tuple[str, dict[WorkloadKey, Posterior], RolePrior], ...] = (
        ("victim", state.as_victim, effects.prior.as_victim),
        ("neighbour", state.as_neighbour, effects.prior.as_neighbour),
    )
    for role, posteriors, role_prior in roles:
        means: Floats = arrays[f"{prefix}{role}_mean"]
        covariances: Floats = arrays[f"{prefix}{role}_covariance"]
        for key, mean, covariance in zip(keys_of(f"{role}_keys"), means, covariances, strict=True):
            prior = effects.prior_covariance(key, role_prior)
            posteriors[key] = Posterior(mean=mean, covariance=covariance, prior=prior)
    for table in ("own_shift", "harm_shift", "family_shift"):
        values = arrays[f"{prefix}{table}"].tolist()
        for key, (level, variance, epoch) in zip(keys_of(f"{table}_keys"), values, strict=True):
            getattr(state, table)[key] = LevelShift(level, variance, int(epoch))
    # 2. Pairs.
    neighbours = iter(arrays[f"{prefix}pair_neighbours"].tolist())
    rows = iter(arrays[f"{prefix}pairs"].tolist())
    for victim, count in zip(keys_of("pair_victims"), arrays[f"{prefix}pair_counts"].tolist(), strict=True):
        state.pairs[victim] = {
            names[next(neighbours)]: PairEvidence(information, weighted_mean, shift_var, extra_var, int(epoch))
            for information, weighted_mean, shift_var, extra_var, epoch in (next(rows) for _ in range(count))
        }
    # 3. Streams.
    for (reporter, *victim), row in zip(keys_of("stream_keys"), arrays[f"{prefix}streams"].tolist(), strict=True):
        state.streams[reporter, (victim[0], victim[1], victim[2])] = StreamNoise(*row)
    # 4. Device types that the model never saw.
    for k, (device_type, mode) in enumerate(texts["unseen_devices"]):
        basis = PairPoints(*(arrays[f"{prefix}device_{k}_{name}"] for name in _BASIS))
        posterior = (arrays[f"{prefix}device_{k}_{name}"] for name in _POSTERIOR)
        state.unseen_devices[device_type, mode] = DeviceBelief(basis, *posterior)


def _device_arrays(device: DeviceBelief) -> dict[str, Floats]:
    return {name: getattr(device.basis, name) for name in _BASIS} | {name: getattr(device, name) for name in _POSTERIOR}


def _domain_document(domain: DomainBelief) -> dict[str, Any]:
    recent = [[asdict(window.observation), window.error, window.variance] for window in domain.recent]
    values = {name: getattr(domain, name) for name in DomainBelief.__dataclass_fields__}
    return values | {"recent": recent}


def _nuisance_document(effects: NuisanceEffects) -> dict[str, Any]:
    document: dict[str, Any] = {
        name: [[label, astuple(effect)] for label, effect in getattr(effects, name).items()] for name in _NUISANCES
    }
    return document | {name: sorted(getattr(effects, name)) for name in _NUISANCE_SETS}


def _nuisances_from_document(document: dict[str, Any]) -> NuisanceEffects:
    values: dict[str, Any] = {
        name: {
            tuple(label) if isinstance(label, list) else label: NuisanceEffect(*effect)
            for label, effect in document[name]
        }
        for name in _NUISANCES
    }
    return NuisanceEffects(**values | {name: frozenset(document[name]) for name in _NUISANCE_SETS})


def _domain_from_document(document: dict[str, Any]) -> DomainBelief:
    recent = tuple(
        RecentWindow(
            PairObservation(
                **observation
                | {name: _key(observation[name]) for name in ("victim", "neighbour")}
                | {"families": tuple(observation["families"])}
                | {"coordinates": tuple(tuple(each) for each in observation["coordinates"])}
            ),
            error,
            variance,
        )
        for observation, error, variance in document["recent"]
    )
    tuples: dict[str, Any] = {name: tuple(document[name]) for name in ("mean", "covariance")}
    return DomainBelief(**document | tuples | {"recent": recent})


def _key(names: list[str]) -> WorkloadKey:
    return names[0], names[1], parse_sharing_mode(names[2])


class _NameTable:
    """A table that stores every name once, so that rows can refer to a name by its index."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}

    def rows(self, keys: Any, width: int) -> NDArray[np.int32]:
        """int32[k, width]: the names of every key."""
        indices = [[self._index.setdefault(name, len(self._index)) for name in key] for key in keys]
        return np.array(indices, dtype=np.int32).reshape(-1, width)

    def indices(self, names: Iterable[str]) -> NDArray[np.int32]:
        """int32[k]: the index of every name."""
        return np.array([self._index.setdefault(name, len(self._index)) for name in names], dtype=np.int32)

    def list(self) -> list[str]:
        """All names, by index."""
        return list(self._index)
