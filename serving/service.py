"""The core of the server, free of gRPC: requests and answers are records.

Law 1: whatever was acknowledged is on disk, and a restart forgets nothing.
Law 2: one writer at a time changes profiles, log or model, and then publishes a new `ServedState`; every call answers
from the one it read first, and no reader waits for the writer. A decision is computed outside of any lock and committed
by the revision of its scope's ledger.
"""

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from interfere.errors import InvalidInputError, LimitError, Violation
from interfere.policy.answer.ranking import rank
from interfere.policy.validate import validate_snapshot
from interfere.predict.groups import compose_groups, total_memory_share
from interfere.records import (
    MODES,
    Explanation,
    Job,
    JobProfile,
    MatrixBatch,
    ObservationResult,
    Outcome,
    Plan,
    Snapshot,
)
from interfere.store.protocols import Store
from interfere.wire.messages import (
    ExplainQuery,
    GrantTables,
    MatrixAnswer,
    MatrixQuery,
    ModelInfo,
    ObservationAnswer,
    ObservationLog,
    PairAnswer,
    PairQuery,
    ProfileSummary,
    RankAnswer,
    RankQuery,
    Reported,
)
from interfere.wire.scalars import Inspection
from serving.answers import model_info, predict_known
from serving.decisions import DecisionMaker
from serving.explaining import Explainer
from serving.learning.ledger import ObservationLedger
from serving.limits import MAX_CELLS, MAX_ENTRIES, MAX_PAIRS, check_size
from serving.metrics import Metrics
from serving.profiles import ProfileCatalogue
from serving.state import Knowledge, ServedModel, ServedState

_log = logging.getLogger(__name__)
CLOSE_S = 0.3  # how long a server that stops waits for its writer; the state is then folded from the log again


class PolicyCore:
    """One method per rpc. Thread-safe: readers take the current state and never wait for the one writer."""

    def __init__(
        self,
        *,
        model: ServedModel,
        store: Store,
        metrics: Metrics,
        time_budget_s: float,
        max_log_entries: int = 10_000_000,
    ) -> None:
        """`time_budget_s`: of decisions that name none; `max_log_entries`: of the log that are kept."""
        self._store, self._metrics, self._max_log_entries = store, metrics, max_log_entries
        self._writer = threading.Lock()  # held by whoever changes profiles, the log or the model
        profiles = self._stored_catalogue(model)
        self._count_evictions_of(model)
        self._observed = self._learned_by(model, profiles)
        self._state = ServedState(model=model, profiles=profiles, learned=self._observed.published)
        self._decisions = DecisionMaker(store, metrics, time_budget_s=time_budget_s)
        self._explainer = Explainer(store.audits, self._decisions)
        metrics.set_model_version(self._state.version)

    @property
    def state(self) -> ServedState:
        """What answers are made from now."""
        return self._state

    def warm_up(self) -> None:
        """Decide once about known jobs, so that the first request finds everything loaded."""
        state = self._state
        by_type: dict[str, list[str]] = {}
        for workload, device_type in state.model.shipped:
            by_type.setdefault(device_type, []).append(workload)
        for device_type, workloads in list(by_type.items())[:1]:
            self._decisions.warm_up(state.predictor, state.catalogue(), sorted(workloads)[:4], device_type)

    # --- model and state ---------------------------------------------------------------------------------------------

    def use_model(self, model: ServedModel) -> None:
        """Serve another model from the next call on. What was observed is learned again beside, while calls go on."""
        known = self._state.profiles
        profiles = self._stored_catalogue(model)
        self._count_evictions_of(model)
        observed = self._learned_by(model, profiles)
        with self._writer:
            if self._state.profiles is not known:  # a profile was registered meanwhile
                learned_with, profiles = profiles, self._stored_catalogue(model)
                observed.use_profiles(profiles, changed=profiles.changes_since(learned_with))
            observed.catch_up()
            self._observed = observed
            self._state = ServedState(model=model, profiles=profiles, learned=observed.published)
        self._metrics.set_model_version(self._state.version)

    def _stored_catalogue(self, model: ServedModel, before: ProfileCatalogue | None = None) -> ProfileCatalogue:
        """The profiles of a model and those that are stored; those of `before` stay the same objects."""
        stored = self._store.profiles
        registered = (before.same(profile) if before else profile for profile in stored.all())
        catalogue = model.catalogue(registered, stored.unreadable())
        self._metrics.set_quarantined_profiles(len(catalogue.problems))
        for profile_id, problem in catalogue.problems.items():
            _log.warning("profile %s is set aside, nothing is predicted from it: %s", profile_id, problem)
        return catalogue

    def _count_evictions_of(self, model: ServedModel) -> None:
        """Count what the model's cache evicts."""
        model.encoded_jobs.on_eviction = partial(self._metrics.count_evictions, "encoded_job")

    def _learned_by(self, model: ServedModel, profiles: ProfileCatalogue) -> ObservationLedger:
        """What a model learns from the log."""
        store = self._store
        return ObservationLedger(
            model.untaught, store.observations, store.checkpoints, profiles, self._metrics, self._max_log_entries
        )

    def catch_up(self, last_sequence: int, profiles_digest: str) -> None:
        """Learn what another process wrote to the store, at least up to an entry of the log."""
        with self._writer:
            state = self._state
            if state.profiles.digest() != profiles_digest:
                profiles = self._stored_catalogue(state.model, state.profiles)
                changed = profiles.changes_since(state.profiles)
                self._observed.use_profiles(profiles, changed=changed)
                self._forget(profile for profile in changed if not profiles.knows(profile.profile_id))
                state = replace(state, profiles=profiles)
            if self._observed.published.last_sequence < last_sequence:
                self._observed.catch_up()
            self._state = replace(state, learned=self._observed.published)

    # --- predictions ------------------------------------------------------------------------------------------------

    def predict(self, query: PairQuery) -> PairAnswer:
        """A prediction or an abstention for every pair; raises only on a broken request."""
        state = self._state
        device_type = _device_type(state, query.device_type)
        n = len(query.jobs)
        requested = sum(len(indices) - 1 for indices in query.pairs) or n * (n - 1)
        if requested > MAX_PAIRS:
            raise LimitError(
                "too many pairs", value=requested, remedy=f"at most {MAX_PAIRS}; PredictMatrix takes millions"
            )
        entries = query.pairs or tuple((i, j) for i in range(n) for j in range(n) if i != j)
        pairs = [(victim, neighbour) for victim, *neighbours in entries for neighbour in neighbours]
        victim, neighbour = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        group_sizes = [len(neighbours) for _, *neighbours in entries]
        extrapolate = query.allow_extrapolation
        asked = dict.fromkeys(victim.tolist() + neighbour.tolist())  # other jobs of the request need no answer
        lookups = {k: state.profile_of_ref(query.jobs[k], device_type, extrapolate=extrapolate) for k in asked}
        prediction = predict_known(state.predictor, query, device_type, lookups, victim, neighbour)
        state.model.encoded_jobs.forget((ref.profile for ref in query.jobs if ref.profile), device_type, query.mode)
        has_groups = len(entries) < len(victim)
        if has_groups:
            memory_bytes = query.device_memory_bytes
            shares = [total_memory_share([lookups[k][0] for k in entry], memory_bytes) for entry in entries]
            prediction = compose_groups(prediction, group_sizes, np.array(shares))
        return PairAnswer(
            victim=np.array([entry[0] for entry in entries], dtype=np.int64),
            neighbour=np.array([entry[1] for entry in entries], dtype=np.int64),
            further=tuple(entry[2:] for entry in entries) if has_groups else (),
            prediction=prediction,
            model_version=state.version,
            device_type=device_type,
        )

    def predict_matrix(self, query: MatrixQuery) -> MatrixAnswer:
        """Both directions of a matrix. It does not abstain: a job without a profile is a violation with its path."""
        state = self._state
        device_type = _device_type(state, query.device_type)
        sides = {"victims": query.victims, "neighbours": query.neighbours or query.victims}
        cells = len(sides["victims"]) * len(sides["neighbours"])
        if cells > MAX_CELLS:
            raise LimitError(
                "too large a matrix", value=f"{cells} cells", remedy=f"split it: at most {MAX_CELLS} cells"
            )
        bad: list[Violation] = []
        jobs: dict[str, list[JobProfile]] = {"victims": [], "neighbours": []}
        for side, refs in sides.items():
            for k, ref in enumerate(refs):
                profile, reason = state.profile_of_ref(ref, device_type, extrapolate=query.allow_extrapolation)
                if profile is None:
                    what, _, remedy = reason.partition(": ")
                    bad.append(Violation(field=f"{side}[{k}]", what=what, value=repr(ref.name), remedy=remedy))
                else:
                    jobs[side].append(profile)
            if bad and not query.neighbours:
                break  # neighbours are the victims
        if bad:
            raise InvalidInputError.from_violations(bad)
        matrix = state.predictor.predict_matrix(
            MatrixBatch(
                victims=tuple(jobs["victims"]),
                neighbours=tuple(jobs["neighbours"]),
                device_type=device_type,
                mode=query.mode,
                device_memory_bytes=query.device_memory_bytes,
                allow_extrapolation=query.allow_extrapolation,
            ),
            quantile=query.quantile,
        )
        for refs in sides.values():
            state.model.encoded_jobs.forget((ref.profile for ref in refs if ref.profile), device_type, query.mode)
        return MatrixAnswer(matrix=matrix, model_version=state.version, device_type=device_type)

    # --- decisions --------------------------------------------------------------------------------------------------

    def match(self, snapshot: Snapshot, *, validate_only: bool = False) -> tuple[Plan, Knowledge] | None:
        """The decision for a snapshot, stored under its id when it has one, and what it was made from.

        None when only validated.
        """
        check_size(snapshot)
        _check(snapshot, self._state)
        if validate_only:
            self._decisions.check_clock(snapshot)
            return None
        state = self._state
        return self._decisions.decide(snapshot, state.predictor, state.catalogue()), state.knowledge

    def remember(self, decision_id: str, scope: str, knowledge: Knowledge, request: bytes, answer: bytes) -> None:
        """Store what a decision was made from, for explanations: bytes of a MatchRequest and of its answer."""
        self._explainer.remember(decision_id, scope, knowledge, request, answer)

    def explain(self, query: ExplainQuery) -> Explanation:
        """Why one job got its action, with current knowledge. Raises NotFoundError."""
        return self._explainer.explain(query, self._state)

    def rank(self, query: RankQuery) -> RankAnswer:
        """Every device for one job, best first."""
        state = self._state
        if bad := _unknown_ids({"job": query.job}, state.profiles):
            raise InvalidInputError.from_violations(bad)
        promises = self._decisions.promises(query.scope) if query.scope else ()
        devices = query.devices
        if query.scope:
            residents = Snapshot(scope=query.scope, pending=(), devices=devices)
            devices = self._decisions.with_grants(residents).devices
        rankings = rank(query.job, devices, state.predictor, state.catalogue(), query.limits, query.objective, promises)
        return RankAnswer(rankings=rankings, model_version=state.version)

    def grants(self, scope: str) -> GrantTables:
        """Memory grants of a scope, as of its last decision with a clock."""
        return self._decisions.grants(scope)

    # --- facts ------------------------------------------------------------------------------------------------------

    def observe(self, reported: Sequence[Reported]) -> tuple[ObservationAnswer, ...]:
        """An answer for each observation. All but rejected ones are stored before this returns."""
        with self._writer:
            answers = self._observed.observe(reported)
            self._state = replace(self._state, learned=self._observed.published)
        for observation, answer in zip(reported, answers, strict=True):
            if isinstance(observation, Outcome) and answer.result is ObservationResult.APPLIED:
                self._decisions.apply_outcome(observation)
        return answers

    def log(self, at: int | None, limit: int) -> ObservationLog:
        """The newest entries of the log up to a point, and the online state at that point."""
        if limit > MAX_ENTRIES:
            raise LimitError("too many entries", value=limit, remedy=f"at most {MAX_ENTRIES}; go on from the last one")
        return self._observed.log(at, limit)

    def store_state(self) -> None:
        """Store the online state, so that the next start is quick; not where a writer does not end."""
        if self._writer.acquire(timeout=CLOSE_S):
            try:
                self._observed.store_state()
            finally:
                self._writer.release()

    def register(self, profiles: Sequence[JobProfile]) -> tuple[str, ...]:
        """Store profiles, all or none; they are used from now on.

        Raises InvalidInputError for one that the model cannot be asked about.
        """
        check_encodable = self._state.model.check_encodable
        inspection = Inspection()
        for k, profile in enumerate(profiles):
            inspection.read(f"profiles[{k}]", partial(check_encodable, profile))
        inspection.done()
        with self._writer:
            ids = self._store.profiles.put(profiles)
            before, catalogue = self._state.profiles, self._state.profiles.with_registered(profiles)
            known = (profile.profile_id for profile in (*before.registered(), *profiles))
            if superseded := [profile_id for profile_id in known if not catalogue.knows(profile_id)]:
                self._store.profiles.remove(superseded)
                self._metrics.count_evictions("profile_version", len(superseded))
                self._forget(before.get(profile_id) for profile_id in superseded if before.knows(profile_id))
            self._observed.use_profiles(catalogue, changed=profiles)
            self._state = replace(self._state, profiles=catalogue, learned=self._observed.published)
            return ids

    def remove_profiles(self, profile_ids: Sequence[str]) -> tuple[str, ...]:
        """Remove registered profiles, those set aside too; the ids that were there."""
        with self._writer:
            removed = self._store.profiles.remove(profile_ids)
            if removed:
                before = self._state.profiles
                profiles = self._stored_catalogue(self._state.model, before)
                changed = [before.get(profile_id) for profile_id in removed if before.knows(profile_id)]
                self._observed.use_profiles(profiles, changed=changed)
                self._state = replace(self._state, profiles=profiles, learned=self._observed.published)
                self._forget(changed)
            return removed

    def _forget(self, profiles: Iterable[JobProfile]) -> None:
        """Drop profiles that are no longer in the catalogue from the model's cache."""
        gone = list(profiles)
        for mode in MODES:
            for profile in gone:
                self._state.model.encoded_jobs.forget([profile], profile.device_type, mode)

    def profile(self, profile_id: str) -> JobProfile:
        """One profile; raises NotFoundError."""
        return self._state.profiles.get(profile_id)

    def profiles(self, workload: str, device_type: str) -> tuple[ProfileSummary, ...]:
        """A summary of each profile."""
        return self._state.profiles.summaries(workload, device_type)

    def model(self) -> ModelInfo:
        """The served model and the state of its online correction."""
        state = self._state
        return model_info(state.model.manifest, state.learned.summary())


def _device_type(state: ServedState, requested: str) -> str:
    """The requested device type, else the only one that the model knows."""
    if requested:
        return requested
    known = sorted({domain.device_type for domain in state.model.manifest.domains})
    if len(known) == 1:
        return known[0]
    raise InvalidInputError.from_violations(
        [Violation(field="device_type", what="is needed", value="''", remedy=f"one of {', '.join(known)}")]
    )


def _check(snapshot: Snapshot, state: ServedState) -> None:
    """Raise InvalidInputError for a snapshot that contradicts itself or names unknown profiles."""
    bad = [
        Violation(field=name, what="must be printable and short", value=repr(value[:40]), remedy="≤ 256 characters")
        for name, value in (("scope", snapshot.scope), ("snapshot_id", snapshot.snapshot_id))
        if len(value) > 256 or not value.isprintable()
    ]
    bad += validate_snapshot(snapshot)
    jobs = {f"pending[{k}]": job for k, job in enumerate(snapshot.pending)}
    for k, device in enumerate(snapshot.devices):
        jobs |= {f"devices[{k}].residents[{r}]": job for r, job in enumerate(device.residents)}
    bad += _unknown_ids(jobs, state.profiles)
    if bad:
        raise InvalidInputError.from_violations(bad)


def _unknown_ids(jobs: Mapping[str, Job], profiles: ProfileCatalogue) -> list[Violation]:
    return [
        Violation(
            field=f"{path}.profile_id",
            what="no profile has this id",
            value=repr(job.profile_id),
            remedy="leave it out to use the workload's newest, or register the profile first",
        )
        for path, job in jobs.items()
        if job.profile_id and not profiles.knows(job.profile_id)
    ]
