"""The core of the server: the state that answers are computed from, and the one writer that changes the state. No gRPC.

Law 1: all acknowledged input is on disk, and a restart forgets nothing. Law 2: one change at a time; each change
publishes a new `ServedState` as a whole, and no reader waits for it.
"""

import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import islice

import interfere
from interfere.errors import InvalidInputError, LimitError, UnavailableError
from interfere.policy.decide import decide
from interfere.policy.site_policy import NO_ADDITIONS, SitePolicy
from interfere.policy.validate import validate_clock
from interfere.predict.acceptance.score import score
from interfere.predict.residual import OnlineModel
from interfere.records import (
    Device,
    Job,
    JobProfile,
    ModelDomain,
    ModelInfo,
    ObservationAnswer,
    ObservationLog,
    ObservationResult,
    Outcome,
    Plan,
    Progress,
    Reported,
    ScopeLedger,
    Snapshot,
    TrainingTableSummary,
)
from interfere.records.checks import Inspection
from interfere.records.served_model import scores_of
from interfere.serving.decisions import DecisionMaker, check_snapshot
from interfere.serving.learning.ledger import ObservationLedger
from interfere.serving.learning.log_fold import LogFold
from interfere.serving.metrics import Metrics
from interfere.serving.predicting import check_predicted_pairs
from interfere.serving.profiles import ProfileCatalogue
from interfere.serving.state import ServedModel, ServedState
from interfere.store.rows import DecisionAudit
from interfere.store.store import Store
from interfere.time_budget import interruptible
from interfere.wire.snapshots import KnownSnapshots

_log = logging.getLogger(__name__)
MAX_ENTRIES = 1_000  # of one page of the log
MAX_INTERVALS = 20  # of one report, that are compared with what is observed
LEARNED = (ObservationResult.APPLIED, ObservationResult.QUARANTINED)


class PolicyCore:
    """Answers from the present state and changes that state. Thread-safe: readers never wait for the one writer."""

    def __init__(
        self,
        *,
        model: ServedModel,
        store: Store,
        metrics: Metrics,
        time_budget_s: float,
        site_policy: SitePolicy = NO_ADDITIONS,
        max_log_entries: int = 10_000_000,
        learns_beside: bool = False,
    ) -> None:
        """Serve a model. `time_budget_s`: budget of decisions whose limits name none. `site_policy`: objectives and
        rules of other packages. `max_log_entries`: largest number of log entries that are kept.

        `learns_beside`: learn a long log again in the background, while the previous model answers calls.
        """
        self.store, self._metrics, self._max_log_entries = store, metrics, max_log_entries
        self._learns_beside = learns_beside
        self._writing = threading.Lock()
        self.decisions = DecisionMaker(store, metrics, time_budget_s=time_budget_s, site_policy=site_policy)
        self.snapshots = KnownSnapshots()
        self._profiles_version = store.profiles.version()
        profiles = self._stored_catalogue(model)
        self._observed = self._learned_by(model, profiles, metrics, self._show_learned)
        self._state = ServedState(model=model, profiles=profiles, learned=self._observed.published)
        metrics.set_model_version(self._state.version)

    @property
    def state(self) -> ServedState:
        """The model, the profiles and the learned state that answers are computed from now."""
        return self._state

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Let one change at a time begin. Nothing interrupts it: what was learned half would be learned twice."""
        with self._writing, interruptible(lambda: None):
            yield

    # --- answers ----------------------------------------------------------------------------------------------------

    def match(self, snapshot: Snapshot, digest: str, *, greedy_because: str = "") -> tuple[Plan, ServedState]:
        """Return the decision for a snapshot, and the state that the decision was made from.

        A decision about a snapshot with an id is stored under this id. `digest`: of the bytes of the snapshot.
        `greedy_because`: why the decision is to be the greedy plan, without a search.
        """
        state = self.state
        check_snapshot(snapshot, state.profiles, self.decisions.site_policy)
        check_predicted_pairs(snapshot, state)
        return self.decisions.decide(snapshot, digest, state, greedy_because=greedy_because), state

    def validate(self, snapshot: Snapshot) -> None:
        """Raise what a decision for the snapshot would raise before anything is computed."""
        check_snapshot(snapshot, self.state.profiles, self.decisions.site_policy)
        check_predicted_pairs(snapshot, self.state)
        if violations := validate_clock(snapshot, self.store.ledgers.read(snapshot.scope)):
            raise InvalidInputError.from_violations(violations)

    def remember(self, audit: DecisionAudit) -> None:
        """Store the audit of a decision. Where it cannot be stored, the decision stands and is not explained."""
        with suppress(UnavailableError):
            self.store.audits.put(audit)

    def model(self) -> ModelInfo:
        """Return the description of the served model: its manifest, its card, and the state of its online
        correction."""
        manifest = self.state.model.manifest
        return ModelInfo(
            version=manifest.version,
            model=manifest.model,
            matrix_model=manifest.model,
            matrix_limit_pairs=0 if manifest.matrix_limit is None else manifest.matrix_limit.pairs,
            selected_by=manifest.selected_by,
            card=self.state.model.card,
            fingerprint=manifest.fingerprint,
            created_at=manifest.created_at,
            workloads=manifest.workloads,
            domains=tuple(
                ModelDomain(device_type=d.device_type, mode=d.mode, metric=d.metric) for d in self.state.model.domains
            ),
            calibrated=manifest.intervals.calibrated,
            trained_on=tuple(
                TrainingTableSummary(table=str(t["table"]), rows=int(t["rows"]), sha256=str(t["sha256"]))
                for t in manifest.trained_on
            ),
            scores=scores_of(manifest.scores),
            online=self.state.learned.summary(),
            server_version=interfere.__version__,
        )

    def warm_up(self) -> None:
        """Make one decision about invented jobs, so that libraries are loaded before the first time budget runs."""
        state = self.state
        by_type: dict[str, list[str]] = {}
        for workload, device_type in state.model.shipped:
            by_type.setdefault(device_type, []).append(workload)
        for device_type, workloads in list(by_type.items())[:1]:
            pending = tuple(Job(id=f"job-{k}", workload=name) for k, name in enumerate(sorted(workloads)[:4]))
            snapshot = Snapshot(pending=pending, devices=(Device(id="device", type=device_type),))
            decide(state.context(snapshot), ScopeLedger(scope=""))

    # --- the model --------------------------------------------------------------------------------------------------

    def replica(self, model: ServedModel) -> "PolicyCore":
        """Return a core with another model on the same store. It has learned the observations; `follow` lets it learn
        the newer ones."""
        replica = copy(self)
        profiles = self._stored_catalogue(model)
        replica._observed = self._learned_by(model, profiles, Metrics(), replica._show_learned)
        replica._state = ServedState(model=model, profiles=profiles, learned=replica._observed.published)
        return replica

    def follow(self, other: "PolicyCore") -> None:
        """Learn what another core on the same store has learned since."""
        with self._changing():
            self._follow(other)

    def _follow(self, other: "PolicyCore") -> None:
        learned = other.state.learned
        self._catch_up(learned.last_sequence, other.state.profiles.digest())

    def take_over(self, replica: "PolicyCore") -> None:
        """Serve the model of a replica from the next call on. The replica must not be used afterwards."""
        with self._changing():
            replica._follow(self)
            self._observed.close()
            self._observed, self._state = replica._observed, replica._state
            self._observed.report_to(self._metrics, self._show_learned)
        self._metrics.set_model_version(self._state.version)

    def learned_at(self, model: ServedModel, sequence: int) -> OnlineModel:
        """Return a model after it has learned the log up to an entry."""
        profiles = self._stored_catalogue(model)
        fold = LogFold(model.untaught, self.store.observations, self.store.checkpoints, profiles)
        return fold.model_after(sequence)[0]

    def _stored_catalogue(self, model: ServedModel, before: ProfileCatalogue | None = None) -> ProfileCatalogue:
        """Return the catalogue of the model's own and the stored profiles. Profiles in the earlier catalogue `before`
        stay the same objects."""
        catalogue = model.catalogue(self.store.profiles, before)
        self._metrics.set("interfere_quarantined_profiles", len(catalogue.problems))
        for profile_id, problem in catalogue.problems.items():
            _log.warning("profile %s is set aside, nothing is predicted from it: %s", profile_id, problem)
        return catalogue

    def _learned_by(
        self, model: ServedModel, profiles: ProfileCatalogue, metrics: Metrics, on_replaced: Callable[[], None]
    ) -> ObservationLedger:
        """Return the ledger of the observations as a model learned them. The evictions of the model's cache are counted
        from now on."""
        model.encoded_jobs.on_eviction = partial(self._metrics.count_evictions, "encoded_job")
        return ObservationLedger(
            model.untaught,
            self.store.observations,
            self.store.checkpoints,
            profiles,
            metrics,
            self._max_log_entries,
            writer=self._writing if self._learns_beside else None,
            on_replaced=on_replaced,
        )

    def _show_learned(self, profiles: ProfileCatalogue | None = None) -> None:
        """Publish the present learned state, and with `profiles` a new catalogue, for the answers from now on."""
        self._state = replace(self._state, profiles=profiles or self._state.profiles, learned=self._observed.published)

    # --- the log ----------------------------------------------------------------------------------------------------

    def observe(self, reported: Sequence[Reported]) -> tuple[ObservationAnswer, ...]:
        """Learn observations, and return an answer for each. All but rejected observations are stored before this
        method returns."""
        told = self._told_intervals(reported)
        with self._changing():
            observed = self._observed
            answers = observed.observe(reported)
            self._show_learned()
        for k, (slowdown, lower, upper) in told.items():
            if answers[k].result in LEARNED:
                result = "inside" if lower <= slowdown <= upper else "outside"
                self._metrics.add("interfere_interval_observations", 1, result)
                self._metrics.observe("interfere_interval_width_ratio", upper / lower)
        if observed.state_is_due:
            observed.store_state()
            with self._changing():
                observed.prune()
                self._show_learned()
        for observation, answer in zip(reported, answers, strict=True):
            if isinstance(observation, Outcome) and answer.result is ObservationResult.APPLIED:
                self.decisions.apply_outcome(observation)
        return answers

    def _told_intervals(self, reported: Sequence[Reported]) -> dict[int, tuple[float, float, float]]:
        """Return the slowdowns of shared windows and the ends of the 90 % intervals that are told before they are
        learned, by the index of the window; of some windows of a large report."""
        state = self._state
        shared = ((k, each) for k, each in enumerate(reported) if isinstance(each, Progress) and each.company)
        found = ((k, state.case_of(window)) for k, window in islice(shared, MAX_INTERVALS))
        cases = {k: case for k, case in found if case is not None and math.isfinite(case.slowdown)}
        if not cases:
            return {}
        (told,) = score(state.predictor, list(cases.values()), [slice(None)])
        ends = zip(told.lower.tolist(), told.upper.tolist(), strict=True)
        return {k: (case.slowdown, *end) for (k, case), end in zip(cases.items(), ends, strict=True) if end[0] > 0}

    def log(self, at: int | None, limit: int) -> ObservationLog:
        """Return the newest entries of the log up to an entry, and the online state at this entry."""
        if limit > MAX_ENTRIES:
            raise LimitError("too many entries", value=limit, remedy=f"at most {MAX_ENTRIES}; go on from the last one")
        return self._observed.log(at, limit)

    def catch_up(self, last_sequence: int, profiles_digest: str, *, relearning: bool = False) -> None:
        """Learn the entries that another process wrote to the store, at least up to entry `last_sequence`.

        `relearning`: the other process learns the log again; the present model answers until the result is stored.
        """
        with self._changing():
            self._catch_up(last_sequence, profiles_digest, relearning=relearning)

    def _catch_up(self, last_sequence: int, profiles_digest: str, *, relearning: bool = False) -> None:
        if self._state.profiles.digest() != profiles_digest:
            self._use_stored_profiles(relearning=relearning)
        learned = self._observed.published
        if learned.last_sequence < last_sequence or (learned.relearning and not relearning):
            self._observed.catch_up(relearning=relearning)
        self._show_learned()

    def _use_stored_profiles(self, *, relearning: bool = False) -> None:
        """Use the profiles that the store holds now."""
        before = self._state.profiles
        profiles = self._stored_catalogue(self._state.model, before)
        self._observed.use_profiles(profiles, changed=profiles.changes_since(before), relearning=relearning)
        self._show_learned(profiles)

    def follow_store(self) -> None:
        """Learn what other servers have written to the store since: observations and profiles."""
        with self._changing():
            if (version := self.store.profiles.version()) != self._profiles_version:
                self._use_stored_profiles()
                self._profiles_version = version
            if self.store.observations.bounds()[1] != self._state.learned.last_sequence:
                self._observed.catch_up()
            self._show_learned()

    def store_state(self, *, if_due: bool = False) -> None:
        """Store the online state, so that the next start is quick; with `if_due` only where much was learned since the
        last stored state."""
        if self._observed.state_is_due or not if_due:
            self._observed.store_state()

    def close(self) -> None:
        """Stop learning the log again, and store the online state."""
        self._observed.close()
        self._observed.store_state()

    # --- profiles ---------------------------------------------------------------------------------------------------

    def register(self, profiles: Sequence[JobProfile], caller: str = "") -> tuple[str, ...]:
        """Store profiles of a caller, all or none, and return their ids. They are used from now on.

        Raises InvalidInputError for a profile that the model cannot encode.
        """
        check_encodable = self._state.model.check_encodable
        inspection = Inspection()
        for k, profile in enumerate(profiles):
            inspection.read(f"profiles[{k}]", partial(check_encodable, profile))
        inspection.done()
        with self._changing():
            ids = self.store.profiles.put(profiles, caller)
            before = self._state.profiles
            catalogue = before.with_registered(dict(zip(ids, profiles, strict=True)))
            if superseded := [each for each in (*before.registered(), *ids) if not catalogue.knows(each)]:
                self.store.profiles.remove(superseded)
                self._metrics.count_evictions("profile_version", len(superseded))
            self._observed.use_profiles(catalogue, changed=profiles)
            self._show_learned(catalogue)
            return ids

    def remove_profiles(self, profile_ids: Sequence[str]) -> tuple[str, ...]:
        """Remove registered profiles, including unusable ones, and return the ids that were stored."""
        with self._changing():
            removed = self.store.profiles.remove(profile_ids)
            if removed:
                before = self._state.profiles
                profiles = self._stored_catalogue(self._state.model, before)
                changed = [before.get(profile_id) for profile_id in removed if before.knows(profile_id)]
                self._observed.use_profiles(profiles, changed=changed)
                self._show_learned(profiles)
            return removed
