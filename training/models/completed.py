"""A model behind a fact completion: absent facts are estimated before the inner model reads them.

The inner model is fitted on completed rows and its graph reads completed rows; `predict` takes rows with absent facts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.data.tables import Table
from interfere.features.pair import FeatureEncoder
from interfere.predict.completion import FactCompletion, fit_completion
from interfere.predict.novelty import JobSpace, pair_novelty
from interfere.protocols import PairEncoder
from interfere.training.dataset import Dataset, PairRows, known_profiles
from interfere.training.models.protocols import FittedModel, ModelSettings

ENCODER = FeatureEncoder()  # computes the columns of a pair again from its two completed jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedCompleted:
    """A fitted model with the fact completion of its training rows."""

    inner: Any  # a FittedModel, perhaps with a `space` or `to_matrix_onnx`
    completion: FactCompletion

    @property
    def name(self) -> str:
        """Return the name of the inner model."""
        return str(self.inner.name)

    @property
    def space(self) -> JobSpace | None:
        """Return the space of the known jobs, or None for a model without one."""
        space: JobSpace | None = getattr(self.inner, "space", None)
        return space

    def completed(self, rows: PairRows) -> PairRows:
        """Return the rows with absent facts estimated, as the inner model reads them."""
        return complete_rows(rows, self.completion)

    def predict(self, rows: PairRows) -> NDArray[np.float64]:
        """Return predicted log slowdowns, float64[p]."""
        return np.asarray(self.inner.predict(self.completed(rows)), dtype=np.float64)

    def novelty(self, rows: PairRows) -> NDArray[np.float64]:
        """Return the novelty of each pair, float64[p] in [0, 1]; 0 for a model without a space of jobs."""
        if self.space is None:
            return np.zeros(len(rows))
        victim, neighbour = (self.space.novelty(*self.completion.complete(jobs)) for jobs in jobs_of_rows(rows))
        return pair_novelty(victim, neighbour)

    def to_onnx(self) -> bytes:
        """Return the serialised `pair.onnx` of the inner model, which reads completed rows."""
        return bytes(self.inner.to_onnx())


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedModel:
    """Settings of a model that is fitted on rows with estimated absent facts."""

    inner: ModelSettings

    @property
    def name(self) -> str:
        """Return the name of the inner model."""
        return self.inner.name

    def fit(self, dataset: Dataset, seed: int) -> FittedCompleted:
        """Fit the completion on the jobs of these rows, then the inner model on the completed rows."""
        completion = completion_of(dataset)
        return FittedCompleted(inner=self.inner.fit(complete_dataset(dataset, completion), seed), completion=completion)


def settings_of(model: ModelSettings) -> ModelSettings:
    """Return the settings of the model without fact completion."""
    return model.inner if isinstance(model, CompletedModel) else model


def exported_form(model: FittedModel, dataset: Dataset) -> tuple[Any, Dataset]:
    """Return the model whose graph is exported, and the dataset in the form that this graph reads."""
    if isinstance(model, FittedCompleted):
        return model.inner, complete_dataset(dataset, model.completion)
    return model, dataset


def completion_of(dataset: Dataset) -> FactCompletion:
    """Return a fact completion fitted on the distinct jobs of the dataset."""
    jobs = np.ascontiguousarray(np.concatenate(jobs_of_rows(dataset.rows)))
    workload = np.concatenate([dataset.rows.victim, dataset.rows.neighbour])
    _, first = np.unique(jobs.view(np.uint32), axis=0, return_index=True)  # by bits: NaN equals NaN
    return fit_completion(jobs[first], workload[first])


def complete_dataset(dataset: Dataset, completion: FactCompletion) -> Dataset:
    """Return the dataset with absent facts estimated."""
    return replace(dataset, rows=complete_rows(dataset.rows, completion))


def complete_rows(rows: PairRows, completion: FactCompletion) -> PairRows:
    """Return the rows with the absent facts of both jobs estimated."""
    victims, neighbours = jobs_of_rows(rows)
    if not (np.isnan(victims).any() or np.isnan(neighbours).any()):
        return rows
    return replace(
        rows, pairs=ENCODER.encode_pairs(completion.complete(victims)[0], completion.complete(neighbours)[0])
    )


def jobs_of_rows(rows: PairRows) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the encoded victims and neighbours of the rows, float32[p, F] each."""
    width = len(ENCODER.job_names)
    return rows.pairs[:, :width], rows.pairs[:, width : 2 * width]


def completion_of_model(model: FittedModel, dataset: Dataset) -> FactCompletion:
    """Return the fact completion of a fitted model; for a model without one, a completion fitted on the dataset."""
    return model.completion if isinstance(model, FittedCompleted) else completion_of(dataset)


def encoded_workloads(
    dataset: Dataset, domain: int, tables: Sequence[Table], encoder: PairEncoder, completion: FactCompletion
) -> NDArray[np.float32]:
    """Return float32[N, F]: the encoded profile of each workload on the domain's device type; NaN without one."""
    profiles = {(job.workload, job.device_type): job for job in known_profiles(tables).jobs}
    place = dataset.domains[domain]
    rows = np.full((len(dataset.workloads), len(dataset.job_columns)), np.nan, dtype=np.float32)
    for k, name in enumerate(dataset.workloads):
        if (profile := profiles.get((name, place.device_type))) is not None:
            rows[k] = completion.complete(encoder.encode_jobs([profile], place.device_type, place.mode))[0][0]
    return rows
