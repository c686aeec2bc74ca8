"""What the log of a site's server tells a training: which domains changed, and how well a model predicts its windows.

A domain is a device type with a sharing mode. A domain has changed where its windows contradict what the base tables
measured of the same pairs for all jobs together, as an upgrade of its software stack does. The change is found by the
belief that also serves (`interfere.predict.online.belief`), which learns the windows in their order.
Law: equal base tables and equal logs give equal changes, however often was retrained in between.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from interfere.data.tables import Table
from interfere.predict.acceptance.score import Case, score
from interfere.predict.field.smoothing import MAX_RECENT
from interfere.predict.measured import MeasuredPredictor, read_measured_table
from interfere.predict.online.belief import Belief
from interfere.predict.online.belief_state import BeliefState, DomainKey, PairObservation
from interfere.predict.online.prior import default_prior, read_prior
from interfere.predict.onnx import load_model
from interfere.predict.residual import OnlineModel
from interfere.protocols import PairEncoder
from interfere.records import MAX_SLOWDOWN, MIN_SLOWDOWN, JobProfile
from interfere.store.observed_table import DomainChange, LoggedWindow

CONTRADICTED_WEIGHT = 0.5  # a window that is learned with less contradicts what was believed before it
BEFORE = 8  # windows by which a change may have begun before the one that explains it best
SCORED_WINDOWS = 200  # newest windows of pairs and groups that compare two models
MIN_SCORED_WINDOWS = 20  # fewer tell nothing about a model
SCORE_TOLERANCE = 0.003  # of the mean error, by which the model to be published may be worse


def changed_domains(tables: Iterable[Table], windows: Iterable[LoggedWindow]) -> tuple[DomainChange, ...]:
    """Return the newest change of every domain whose windows, oldest first, contradict the base tables."""
    log_measured, family_of = {}, {}
    for table in tables:
        family_of.update({job.workload: job.family for job in table.jobs})
        for row in table.ok_pairs:
            log_measured[row.victim, row.neighbour, row.device_type, row.mode] = math.log(row.slowdown)
    belief = Belief(default_prior(), BeliefState())
    changes: dict[DomainKey, DomainChange] = {}
    recent: dict[DomainKey, deque[tuple[int, bool]]] = {}  # (entry, whether it contradicted), by domain
    for logged in windows:
        window = logged.window
        if len(window.company) != 1 or not MIN_SLOWDOWN <= logged.slowdown <= MAX_SLOWDOWN:
            continue
        (neighbour,), domain = window.company, (window.device_type, window.mode)
        predicted = log_measured.get((window.workload, neighbour, *domain))
        if predicted is None:
            continue
        learned = belief.learn(
            PairObservation(
                victim=(window.workload, *domain),
                neighbour=(neighbour, *domain),
                log_predicted=predicted,
                log_observed=math.log(logged.slowdown),
                measured=True,
                reporter=window.reporter,
                device=window.device_id,
                families=(family_of.get(window.workload, ""), family_of.get(neighbour, "")),
            )
        )
        of_domain = recent.setdefault(domain, deque(maxlen=MAX_RECENT))
        of_domain.append((logged.sequence, learned.weight < CONTRADICTED_WEIGHT))
        if learned.since:
            late = list(of_domain)[-learned.since - BEFORE :]
            first = next((entry for entry, contradicted in late if contradicted), late[-1][0])
            changes[domain] = DomainChange(device_type=domain[0], mode=domain[1], sequence=first)
    return tuple(changes[domain] for domain in sorted(changes))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogScore:
    """How far a model that learns a log was off on its newest windows, each predicted before it was learned."""

    windows: int
    error: float  # mean error of speed; NaN without windows

    def refusal(self, served: "LogScore") -> str:
        """Return why this model must not replace the served one: "" where it errs no more, or too little is known."""
        if min(self.windows, served.windows) < MIN_SCORED_WINDOWS or self.error <= served.error + SCORE_TOLERANCE:
            return ""
        return (
            f"refused: on the newest {self.windows} windows of the log its mean error of speed is {self.error:.3f}, "
            f"that of the served model with the same log {served.error:.3f}"
        )


def score_on_log(
    folder: Path, encoder: PairEncoder, log: Sequence[LoggedWindow], profiles: Iterable[JobProfile]
) -> LogScore:
    """Return how well the model of a folder, served with this log, predicts the newest windows of the log.

    `profiles`, oldest first, are those that the server's store holds; the model's own stand behind them. Raises
    ModelError where the folder must not be served.
    """
    model = load_model(folder, encoder)
    measured = read_measured_table(folder, model.manifest)
    step_times = {key: profile.step_time_s for key, profile in model.profiles.items()}
    online = OnlineModel(
        MeasuredPredictor(model, measured, step_times, feasibility=model.feasibility),
        read_prior(folder),
        measured=measured,
        step_times=step_times,
        coordinates=model.coordinates,
    )
    known = dict(model.profiles) | {(profile.workload, profile.device_type): profile for profile in profiles}
    found = ((place, _case_of(logged, known)) for place, logged in enumerate(log))
    cases = [(place, case) for place, case in found if case is not None][-SCORED_WINDOWS:]
    starts = [*(place for place, _ in cases), len(log)]

    def learn(first: int, last: int) -> None:
        for logged in log[first:last]:
            online.observe(logged.window, lambda workload, device_type: known.get((workload, device_type)))

    learn(0, starts[0])
    every = [slice(k, k + 1) for k in range(len(cases))]
    scores = score(
        online, [case for _, case in cases], every, lambda part: learn(starts[part.start], starts[part.stop])
    )
    errors = [float(each.error[0]) for each in scores if math.isfinite(each.error[0])]
    return LogScore(windows=len(errors), error=float(np.mean(errors)) if errors else math.nan)


def _case_of(logged: LoggedWindow, known: Mapping[tuple[str, str], JobProfile]) -> Case | None:
    """Return the case of a window; None for a job alone, and where a profile or the slowdown is not known."""
    window = logged.window
    names = (window.workload, *window.company)
    profiles = [profile for name in names if (profile := known.get((name, window.device_type))) is not None]
    if len(names) == 1 or len(profiles) < len(names) or not MIN_SLOWDOWN <= logged.slowdown <= MAX_SLOWDOWN:
        return None
    victim, *neighbours = profiles
    return Case(
        victim=victim,
        neighbours=tuple(neighbours),
        device_type=window.device_type,
        mode=window.mode,
        slowdown=logged.slowdown,
    )
