"""The registered model: MLflow copies this file into the model, and runs it to load the model folder beside it.

Asked about pairs of jobs by name, or with profiles of jobs that it never saw, it answers as a policy server does that
has learned nothing since: a measured pair by its measurement, any other by the model with its 90 % interval.
"""

import json
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.pyfunc import PythonModel, PythonModelContext

from interfere.errors import InvalidInputError
from interfere.features.pair import FeatureEncoder
from interfere.predict.acceptance.goldens import read_goldens, replay_goldens
from interfere.predict.onnx import load_model, with_measurements
from interfere.records import JobProfile, PairBatch, Source
from interfere.records.documents import from_document
from interfere.sharing_modes import DEFAULT_MODE, SharingMode, parse_sharing_mode

SIDES = ("victim", "neighbour")


class SlowdownModel(PythonModel):  # type: ignore[misc]  # MLflow has no types that mypy may follow
    """Predicts `slowdown` of a victim beside a neighbour with the interval `low` to `high`."""

    def load_context(self, context: PythonModelContext) -> None:
        """Load the model folder. Raises ModelError where it must not be served."""
        folder = Path(context.artifacts["published"])
        model = load_model(folder, FeatureEncoder())
        replay_goldens(*read_goldens(folder), model, model.profiles)
        self._predictor = with_measurements(model, folder)
        self._profiles = model.profiles

    def predict(
        self,
        context: PythonModelContext,  # noqa: ARG002 - MLflow passes it by this name
        model_input: pd.DataFrame,
        params: dict[str, Any] | None = None,
    ) -> pd.DataFrame:
        """Return a DataFrame with a row for each row of the input.

        Input: victim, neighbour, device_type, mode; optionally victim_profile and neighbour_profile, each the facts of
        a job as JSON, such as {"step_time_s": 0.02, "gpu_util_frac": 0.7}. Where a row cannot be predicted, its numbers
        are NaN, its source is `abstained`, and `reason` says why and what to do. Raises InvalidInputError for a profile
        that cannot be read.
        """
        extrapolate = bool((params or {}).get("allow_extrapolation", False))
        frame = model_input.reset_index(drop=True)
        answers = [
            self._answers(rows, str(device_type), parse_sharing_mode(str(mode)), extrapolate)
            for (device_type, mode), rows in frame.groupby(["device_type", "mode"], sort=False)
        ]
        return pd.concat(answers).sort_index() if answers else self._answers(frame, "", DEFAULT_MODE, extrapolate)

    def _answers(self, rows: pd.DataFrame, device_type: str, mode: SharingMode, extrapolate: bool) -> pd.DataFrame:
        """Return the answers to rows of one device type and mode, with the index of the rows."""
        # 1. Find the profile of each job, once for all rows that name it.
        sides = [[_job(row, side) for row in rows.to_dict("records")] for side in SIDES]
        found = {key: self._profile(*key, device_type) for side in sides for key in side}
        known = [key for key, profile in found.items() if profile is not None]
        place = {key: k for k, key in enumerate(known)}
        index = np.array([[place.get(key, -1) for key in side] for side in sides], dtype=np.int64)
        # 2. Predict the rows whose jobs both have one; the others abstain.
        answered = (index >= 0).all(axis=0)
        victim, neighbour = index[:, answered]
        answer = self._predictor.predict_pairs(
            PairBatch(
                jobs=tuple(profile for profile in found.values() if profile is not None),
                victim=victim,
                neighbour=neighbour,
                device_type=device_type,
                mode=mode,
                allow_extrapolation=extrapolate,
            )
        )
        numbers = np.full((3, len(rows)), np.nan)
        numbers[:, answered] = answer.median, answer.lower, answer.upper
        source = np.full(len(rows), Source.ABSTAINED.value, dtype=object)
        reason = np.array(
            [
                f"no profile of {name!r} on {device_type}: give it in victim_profile or neighbour_profile"
                for name in (next((k[0] for k in pair if k not in place), "") for pair in zip(*sides, strict=True))
            ],
            dtype=object,
        )
        source[answered], reason[answered] = [each.value for each in answer.source], list(answer.reason)
        columns = dict(zip(("slowdown", "low", "high"), numbers, strict=True))
        return pd.DataFrame({**columns, "source": source, "reason": reason}, index=rows.index)

    def _profile(self, name: str, text: str, device_type: str) -> JobProfile | None:
        """Return the profile in a JSON text, else the known one. Raises InvalidInputError for a text that is none."""
        if not text:
            return self._profiles.get((name, device_type))
        try:
            facts = json.loads(text)
            if not isinstance(facts, dict):
                raise TypeError("no JSON object")
        except (ValueError, TypeError) as error:
            raise InvalidInputError(
                "not the profile of a job", value=f"{name}: {error}", remedy='facts as JSON: {"step_time_s": 0.02}'
            ) from None
        return from_document(JobProfile, {"workload": name, "device_type": device_type, "step_time_s": None, **facts})


def _job(row: Mapping[Hashable, Any], side: str) -> tuple[str, str]:
    """Return the name of a job, and the text of its profile, "" without one."""
    profile = row.get(f"{side}_profile")
    return str(row[side]), profile if isinstance(profile, str) else ""


mlflow.models.set_model(SlowdownModel())
