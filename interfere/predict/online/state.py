"""What an online model has learned, as bytes and back: a shortcut to the fold of a long log.

Law: a model restored from the snapshot of another one answers, and goes on learning, as that one does.
"""

import gc
import io
import json
from collections.abc import Iterable
from dataclasses import astuple, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.predict.online.drift import Watch
from interfere.predict.online.effects import Block
from interfere.predict.online.prior import Floats, Home, RolePrior
from interfere.predict.online.revertible import UndoDict
from interfere.predict.online.solo_rates import Rate
from interfere.predict.residual import OnlineModel
from interfere.store.json_records import observation_to_json, progress_from_json

FORMAT = 2  # raised whenever learning or this layout changes: older snapshots are then left alone


def content_of(model: OnlineModel) -> bytes:
    """One .npz without pickles."""
    effects, names = model.effects, _Names()
    arrays: dict[str, Any] = {}
    for role, blocks in (("own", effects.own), ("aggressor", effects.aggressor)):
        arrays[f"{role}_homes"] = names.rows(blocks, 3)
        arrays[f"{role}_mean"] = np.array([block.mean for block in blocks.values()])
        arrays[f"{role}_covariance"] = np.array([block.covariance for block in blocks.values()])
    homes: dict[Home, int] = {}
    victims = [homes.setdefault(home, len(homes)) for home, _ in effects.pairs]
    arrays["pair_victims"] = names.rows(homes, 3)
    arrays["pair_ends"] = np.column_stack([victims, names.places(name for _, name in effects.pairs)]).astype(np.int32)
    arrays["pairs"] = np.array(list(effects.pairs.values())).reshape(-1, 2)
    arrays["rate_homes"] = names.rows(model.solo.rates, 2)
    arrays["rates"] = np.array([astuple(rate) for rate in model.solo.rates.values()]).reshape(-1, 2)
    arrays["watch_homes"] = names.rows(model.watches, 3)
    texts = {
        "names": names.list(),
        "cold": sorted(effects.cold),
        "watches": [astuple(watch) for watch in model.watches.values()],
        "everyone": astuple(model.everyone),
        "counts": [model.seen, model.held, model.alarms],
        "waiting": [observation_to_json(window) for waiting in model.solo.waiting.values() for window in waiting],
    }
    arrays["texts"] = np.frombuffer(json.dumps(texts).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def restore(model: OnlineModel, content: bytes) -> None:
    """Put what was learned into a model that has learned nothing, of the same prior."""
    was_on = gc.isenabled()
    gc.disable()  # millions of small objects are made and none is garbage: looking for it doubles the time
    try:
        _restore(model, content)
    finally:
        if was_on:
            gc.enable()


def _restore(model: OnlineModel, content: bytes) -> None:
    effects = model.effects
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        texts = json.loads(arrays["texts"].tobytes())
        names = texts["names"]
        effects.cold.update((workload, device_type, mode) for workload, device_type, mode in texts["cold"])

        def keys(which: str) -> list[tuple[str, ...]]:
            return [tuple(names[k] for k in row) for row in arrays[which].tolist()]

        roles: tuple[tuple[str, UndoDict[Any, Block], RolePrior], ...] = (
            ("own", effects.own, effects.prior.own),
            ("aggressor", effects.aggressor, effects.prior.aggressor),
        )
        for role, blocks, prior in roles:
            means: Floats = arrays[f"{role}_mean"]
            covariances: Floats = arrays[f"{role}_covariance"]
            for home, mean, covariance in zip(keys(f"{role}_homes"), means, covariances, strict=True):
                where = (home[0], home[1], home[2])
                blocks[where] = Block(mean=mean, covariance=covariance, prior=effects.prior_of(where, prior))
        victims = [(a, b, c) for a, b, c in keys("pair_victims")]
        ends = [(victims[i], names[j]) for i, j in arrays["pair_ends"].tolist()]
        effects.pairs.load(zip(ends, map(tuple, arrays["pairs"].tolist()), strict=True))
        for victim, name in ends:
            effects.know_pair(victim, name)
        for (workload, device_type), values in zip(keys("rate_homes"), arrays["rates"].tolist(), strict=True):
            model.solo.rates[workload, device_type] = Rate(*values)
        for (workload, device_type, mode), values in zip(keys("watch_homes"), texts["watches"], strict=True):
            model.watches[workload, device_type, mode] = _watch(values)
    for text in texts["waiting"]:
        model.solo.wait(progress_from_json(text))
    model.everyone = _watch(texts["everyone"])
    model.seen, model.held, model.alarms = texts["counts"]
    for home, watch in model.watches.items():
        if watch.frozen:
            model.drifting[home] = watch


def _watch(values: list[Any]) -> Watch:
    watch = Watch(*values)
    return replace(watch, recent=tuple(watch.recent))


class _Names:
    """Every name once, referred to by its place."""

    def __init__(self) -> None:
        self._place: dict[str, int] = {}

    def rows(self, keys: Any, width: int) -> NDArray[np.int32]:
        found = [[self._place.setdefault(name, len(self._place)) for name in key] for key in keys]
        return np.array(found, dtype=np.int32).reshape(-1, width)

    def places(self, some: Iterable[str]) -> NDArray[np.int32]:
        return np.array([self._place.setdefault(name, len(self._place)) for name in some], dtype=np.int32)

    def list(self) -> list[str]:
        return list(self._place)
