"""What a model predicted of a site's jobs before any of their pairs was measured, kept in the folder of their table.

Law: a prediction that is on disk is never made again. A model that was trained on the table later has seen its pairs;
a belief that started from it would count their measurements twice.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from interfere.errors import TableError
from interfere.file_writing import write_atomically
from interfere.predict.transfer.process import Floats, PairSource, all_pairs, source_of_model
from interfere.protocols import Predictor
from interfere.records import JobProfile, PairBatch
from interfere.sharing_modes import SharingMode, parse_sharing_mode

FILE = "first_predictions.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPredictions:
    """Log slowdowns of all ordered pairs of `n` jobs on one device type and sharing mode, by one or several models."""

    device_type: str
    mode: SharingMode
    models: tuple[str, ...]  # versions, in the order in which they were asked
    jobs: tuple[str, ...]
    log_slowdown: Floats  # float64[n, n], victim by neighbour

    def source(self, jobs: Sequence[str]) -> PairSource:
        """The source of these jobs, in this order. Raises KeyError for a job that was never predicted."""
        index = {name: k for k, name in enumerate(self.jobs)}
        places = [index[name] for name in jobs]
        return source_of_model(", ".join(self.models), self.log_slowdown[np.ix_(places, places)])

    def covers(self, jobs: Sequence[str], device_type: str, mode: SharingMode) -> bool:
        """Whether all these jobs were predicted there."""
        return (self.device_type, self.mode) == (device_type, mode) and set(jobs) <= set(self.jobs)


def read_first_predictions(folder: Path) -> FirstPredictions | None:
    """Return the first predictions in a table's folder; None where it has none.

    Raises TableError for a damaged file.
    """
    path = folder / FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        jobs = tuple(map(str, content["jobs"]))
        log_slowdown = np.array(content["log_slowdown"], dtype=np.float64).reshape(len(jobs), len(jobs))
        if not np.isfinite(log_slowdown).all():
            raise ValueError("a prediction is not a number")
        return FirstPredictions(
            device_type=str(content["device_type"]),
            mode=parse_sharing_mode(content["mode"]),
            models=tuple(map(str, content["models"])),
            jobs=jobs,
            log_slowdown=log_slowdown,
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise TableError(
            f"{FILE} is not a file that onboarding wrote",
            value=f"{path}: {error}",
            remedy="delete it: the served model then predicts the pairs anew",
        ) from None


def write_first_predictions(folder: Path, predictions: FirstPredictions) -> None:
    """Write the file, whole or not at all."""
    content = {
        "device_type": predictions.device_type,
        "mode": predictions.mode,
        "models": predictions.models,
        "jobs": predictions.jobs,
        "log_slowdown": predictions.log_slowdown.tolist(),
    }
    text = json.dumps(content, allow_nan=False) + "\n"
    write_atomically(folder / FILE, lambda temporary: Path(temporary).write_text(text, encoding="utf-8"))


def predict_first(
    before: FirstPredictions | None,
    model: Predictor,
    profiles: Sequence[JobProfile],
    device_type: str,
    mode: SharingMode,
) -> FirstPredictions:
    """The predictions `before`, and the model's for pairs with a job that these lack."""
    jobs = tuple(profile.workload for profile in profiles)
    if before is not None and before.covers(jobs, device_type, mode):
        return before
    log_slowdown, models = log_predictions(model, profiles, device_type, mode), [model.version]
    if before is not None and (before.device_type, before.mode) == (device_type, mode):
        kept = [name for name in before.jobs if name in jobs]
        old, new = ([names.index(name) for name in kept] for names in (before.jobs, jobs))
        log_slowdown[np.ix_(new, new)] = before.log_slowdown[np.ix_(old, old)]
        models = list(dict.fromkeys((*before.models, model.version)))
    return FirstPredictions(
        device_type=device_type, mode=mode, models=tuple(models), jobs=jobs, log_slowdown=log_slowdown
    )


def log_predictions(model: Predictor, jobs: Sequence[JobProfile], device_type: str, mode: SharingMode) -> Floats:
    """float64[n, n]: the model's log slowdown of the row's job beside the column's, however far it extrapolates."""
    n = len(jobs)
    victims, neighbours = all_pairs(n)
    batch = PairBatch(
        jobs=tuple(jobs),
        victim=victims,
        neighbour=neighbours,
        device_type=device_type,
        mode=mode,
        allow_extrapolation=True,
    )
    return np.log(model.predict_pairs(batch).median).reshape(n, n)
