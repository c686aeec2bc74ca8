"""The learned state of an online model as bytes and back, so that a start need not replay a long log of observations.

Law: a model restored from the state of another one answers, and goes on learning, as that one does.
"""

import gc
import io
import json
from collections.abc import Iterable
from dataclasses import astuple, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.predict.online.drift import DriftTest
from interfere.predict.online.effects import Posterior
from interfere.predict.online.prior import Floats, RolePrior, WorkloadKey
from interfere.predict.online.revertible import RevertibleDict
from interfere.predict.online.solo_rates import SoloRate
from interfere.predict.residual import OnlineModel
from interfere.store.json_records import observation_to_json, progress_from_json

FORMAT = 2  # raised whenever learning or this layout changes: states of an older format are then ignored


def dump_state(model: OnlineModel) -> bytes:
    """The learned state as one .npz file without pickles."""
    effects, names = model.effects, _NameTable()
    arrays: dict[str, Any] = {}
    # 1. Posteriors of jobs.
    for role, posteriors in (("own", effects.as_victim), ("aggressor", effects.as_neighbour)):
        arrays[f"{role}_homes"] = names.rows(posteriors, 3)
        arrays[f"{role}_mean"] = np.array([posterior.mean for posterior in posteriors.values()])
        arrays[f"{role}_covariance"] = np.array([posterior.covariance for posterior in posteriors.values()])
    # 2. Posteriors of pairs.
    victim_index: dict[WorkloadKey, int] = {}
    victims = [victim_index.setdefault(victim, len(victim_index)) for victim, _ in effects.pairs]
    neighbours = names.indices(neighbour for _, neighbour in effects.pairs)
    arrays["pair_victims"] = names.rows(victim_index, 3)
    arrays["pair_ends"] = np.column_stack([victims, neighbours]).astype(np.int32)
    arrays["pairs"] = np.array(list(effects.pairs.values())).reshape(-1, 2)
    # 3. Solo rates, drift tests and counts.
    arrays["rate_homes"] = names.rows(model.solo.rates, 2)
    arrays["rates"] = np.array([astuple(rate) for rate in model.solo.rates.values()]).reshape(-1, 2)
    arrays["watch_homes"] = names.rows(model.drift_tests, 3)
    texts = {
        "names": names.list(),
        "cold": sorted(effects.unprofiled),
        "watches": [astuple(test) for test in model.drift_tests.values()],
        "everyone": astuple(model.global_test),
        "counts": [model.observation_count, model.quarantined_count, model.alarm_count],
        "waiting": [observation_to_json(window) for windows in model.solo.pending.values() for window in windows],
    }
    arrays["texts"] = np.frombuffer(json.dumps(texts).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def restore_state(model: OnlineModel, content: bytes) -> None:
    """Load a learned state into a model with the same prior that has learned nothing yet."""
    was_enabled = gc.isenabled()
    gc.disable()  # none of the millions of small objects made here is garbage, and looking for it doubles the time
    try:
        _restore(model, content)
    finally:
        if was_enabled:
            gc.enable()


def _restore(model: OnlineModel, content: bytes) -> None:
    effects = model.effects
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        texts = json.loads(arrays["texts"].tobytes())
        names = texts["names"]
        effects.unprofiled.update((workload, device_type, mode) for workload, device_type, mode in texts["cold"])

        def keys_of(array: str) -> list[tuple[str, ...]]:
            return [tuple(names[k] for k in row) for row in arrays[array].tolist()]

        # 1. Posteriors of jobs.
        roles: tuple[tuple[str, RevertibleDict[Any, Posterior], RolePrior], ...] = (
            ("own", effects.as_victim, effects.prior.as_victim),
            ("aggressor", effects.as_neighbour, effects.prior.as_neighbour),
        )
        for role, posteriors, role_prior in roles:
            means: Floats = arrays[f"{role}_mean"]
            covariances: Floats = arrays[f"{role}_covariance"]
            for names_of_key, mean, covariance in zip(keys_of(f"{role}_homes"), means, covariances, strict=True):
                key = (names_of_key[0], names_of_key[1], names_of_key[2])
                prior = effects.prior_covariance(key, role_prior)
                posteriors[key] = Posterior(mean=mean, covariance=covariance, prior=prior)
        # 2. Posteriors of pairs.
        victims = [(workload, device_type, mode) for workload, device_type, mode in keys_of("pair_victims")]
        pairs = [(victims[i], names[j]) for i, j in arrays["pair_ends"].tolist()]
        effects.pairs.load(zip(pairs, map(tuple, arrays["pairs"].tolist()), strict=True))
        for victim, neighbour in pairs:
            effects.add_observed_pair(victim, neighbour)
        # 3. Solo rates, drift tests and counts.
        for (workload, device_type), values in zip(keys_of("rate_homes"), arrays["rates"].tolist(), strict=True):
            model.solo.rates[workload, device_type] = SoloRate(*values)
        for (workload, device_type, mode), values in zip(keys_of("watch_homes"), texts["watches"], strict=True):
            model.drift_tests[workload, device_type, mode] = _drift_test(values)
    for text in texts["waiting"]:
        model.solo.add_pending(progress_from_json(text))
    model.global_test = _drift_test(texts["everyone"])
    model.observation_count, model.quarantined_count, model.alarm_count = texts["counts"]
    for drift_key, test in model.drift_tests.items():
        if test.frozen:
            model.frozen_tests[drift_key] = test


def _drift_test(values: list[Any]) -> DriftTest:
    test = DriftTest(*values)
    return replace(test, recent=tuple(test.recent))


class _NameTable:
    """Every name once; rows refer to it by its index."""

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
