"""The core of the server, free of gRPC: requests and answers are records.

It owns the store, the catalogue of profiles and the online model, and guards them with one lock.
Law: whatever was acknowledged is on disk, and a restart forgets nothing.
"""

import math
import threading
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from interfere.errors import InvalidInputError, LimitError, Violation
from interfere.policy.answer.ranking import rank
from interfere.policy.context import ProfileLookup
from interfere.policy.validate import validate_snapshot
from interfere.predict.groups import compose_groups, total_memory_share
from interfere.predict.manifest import Manifest
from interfere.predict.measured import StepTimes
from interfere.predict.occlusion import Occlusion
from interfere.predict.online.prior import ResidualPrior
from interfere.predict.residual import OnlineModel
from interfere.protocols import Predictor
from interfere.records import (
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
    JobRef,
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
from serving.answers import model_info, predict_known
from serving.decisions import DecisionMaker
from serving.explaining import Explainer, Knowledge
from serving.learning import ObservationLedger
from serving.limits import MAX_CELLS, MAX_ENTRIES, MAX_PAIRS, check_size
from serving.metrics import Metrics
from serving.profiles import ProfileCatalogue


class PolicyCore:
    """One method per rpc. Thread-safe."""

    def __init__(
        self,
        *,
        predictor: Predictor,
        manifest: Manifest,
        shipped: Mapping[tuple[str, str], JobProfile],
        store: Store,
        metrics: Metrics,
        occlusion: Occlusion,
        time_budget_s: float,
        prior: ResidualPrior | None = None,
        measured: Iterable[tuple[str, str, str, str]] = (),
        step_times: StepTimes | None = None,
    ) -> None:
        """`shipped`: profiles of the model folder. `measured`: pairs answered by their measurement, of jobs with these
        `step_times`. `prior`: of the online correction. `occlusion`: explains the model inside `predictor`.
        `time_budget_s`: of decisions that name none."""
        self._predictor, self._manifest = predictor, manifest
        self._lock = threading.Lock()
        self._profiles = ProfileCatalogue(store.profiles, shipped.values())
        pairs = tuple(measured)
        self._observed = ObservationLedger(
            lambda: OnlineModel(
                predictor,
                prior,
                measured=pairs,
                step_times=step_times,
                elsewhere=self._profiles.of_any_device,
            ),
            store.observations,
            store.checkpoints,
            self._profiles,
            metrics,
        )
        self._decisions = DecisionMaker(store, metrics, time_budget_s=time_budget_s)
        self._explainer = Explainer(
            store.audits,
            occlusion,
            predictor,
            lambda: self._observed.model,
            self._catalogue,
            self._lock,
            lambda snapshot: snapshot if math.isnan(snapshot.now_s) else self._decisions.with_grants(snapshot),
        )
        metrics.set_model_version(predictor.version)

    # --- predictions ------------------------------------------------------------------------------------------------

    def predict(self, query: PairQuery) -> PairAnswer:
        """A prediction or an abstention for every pair; raises only on a broken request."""
        device_type = self._device_type(query.device_type)
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
        with self._lock:
            lookups = [self._of_ref(ref, device_type, extrapolate=query.allow_extrapolation) for ref in query.jobs]
            prediction = predict_known(self._observed.model, query, device_type, lookups, victim, neighbour)
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
            model_version=self._predictor.version,
            device_type=device_type,
        )

    def predict_matrix(self, query: MatrixQuery) -> MatrixAnswer:
        """Both directions of a matrix. It does not abstain: a job without a profile is a violation with its path."""
        device_type = self._device_type(query.device_type)
        sides = {"victims": query.victims, "neighbours": query.neighbours or query.victims}
        cells = len(sides["victims"]) * len(sides["neighbours"])
        if cells > MAX_CELLS:
            raise LimitError(
                "too large a matrix", value=f"{cells} cells", remedy=f"split it: at most {MAX_CELLS} cells"
            )
        with self._lock:
            bad: list[Violation] = []
            jobs: dict[str, list[JobProfile]] = {"victims": [], "neighbours": []}
            for side, refs in sides.items():
                for k, ref in enumerate(refs):
                    profile, reason = self._of_ref(ref, device_type, extrapolate=query.allow_extrapolation)
                    if profile is None:
                        what, _, remedy = reason.partition(": ")
                        bad.append(Violation(field=f"{side}[{k}]", what=what, value=repr(ref.name), remedy=remedy))
                    else:
                        jobs[side].append(profile)
                if bad and not query.neighbours:
                    break  # neighbours are the victims
            if bad:
                raise InvalidInputError.from_violations(bad)
            matrix = self._observed.model.predict_matrix(
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
        return MatrixAnswer(matrix=matrix, model_version=self._predictor.version, device_type=device_type)

    def _catalogue(self) -> ProfileLookup:
        """Profiles and measured memory of jobs, as decisions read them."""
        return ProfileLookup(profiles=self._of_job, used_bytes=self._observed.used_bytes)

    def _of_job(self, job: Job, device_type: str) -> JobProfile | None:
        """The profile of a job; without one, a stand-in that carries what was learned of its workload."""
        profile = self._profiles.of_job(job, device_type)
        return profile or self._observed.model.stand_ins.profile(job.workload, device_type)

    def _of_ref(self, ref: JobRef, device_type: str, *, extrapolate: bool) -> tuple[JobProfile | None, str]:
        profile, reason = self._profiles.of_ref(ref, device_type, extrapolate=extrapolate)
        if profile is not None or not ref.workload:
            return profile, reason
        stand_in = self._observed.model.stand_ins.profile(ref.workload, device_type)
        return (stand_in, "") if stand_in else (None, reason)

    def _device_type(self, requested: str) -> str:
        if requested:
            return requested
        known = sorted({domain.device_type for domain in self._manifest.domains})
        if len(known) == 1:
            return known[0]
        raise InvalidInputError.from_violations(
            [Violation(field="device_type", what="is needed", value="''", remedy=f"one of {', '.join(known)}")]
        )

    # --- decisions --------------------------------------------------------------------------------------------------

    def match(self, snapshot: Snapshot, *, validate_only: bool = False) -> Plan | None:
        """The decision for a snapshot, stored under its id when it has one; None when only validated."""
        check_size(snapshot)
        with self._lock:
            self._check(snapshot)
            if validate_only:
                self._decisions.check_clock(snapshot)
                return None
            return self._decisions.decide(snapshot, self._observed.model, self._catalogue())

    def knowledge(self) -> Knowledge:
        """What decisions are currently made from."""
        with self._lock:
            return Knowledge(self._predictor.version, self._observed.last_sequence, self._profiles.digest())

    def remember(self, decision_id: str, scope: str, knowledge: Knowledge, request: bytes, answer: bytes) -> None:
        """Store what a decision was made from, for explanations: bytes of a MatchRequest and of its answer."""
        self._explainer.remember(decision_id, scope, knowledge, request, answer)

    def explain(self, query: ExplainQuery) -> Explanation:
        """Why one job got its action, with current knowledge. Raises NotFoundError."""
        return self._explainer.explain(query, self.knowledge())

    def _check(self, snapshot: Snapshot) -> None:
        bad = [
            Violation(field=name, what="must be printable and short", value=repr(value[:40]), remedy="≤ 256 characters")
            for name, value in (("scope", snapshot.scope), ("snapshot_id", snapshot.snapshot_id))
            if len(value) > 256 or not value.isprintable()
        ]
        bad += validate_snapshot(snapshot)
        bad += self._unknown_ids({f"pending[{k}]": job for k, job in enumerate(snapshot.pending)})
        bad += self._unknown_ids(
            {
                f"devices[{k}].residents[{r}]": job
                for k, device in enumerate(snapshot.devices)
                for r, job in enumerate(device.residents)
            }
        )
        if bad:
            raise InvalidInputError.from_violations(bad)

    def _unknown_ids(self, jobs: Mapping[str, Job]) -> list[Violation]:
        return [
            Violation(
                field=f"{path}.profile_id",
                what="no profile has this id",
                value=repr(job.profile_id),
                remedy="leave it out to use the workload's newest, or register the profile first",
            )
            for path, job in jobs.items()
            if job.profile_id and not self._profiles.knows(job.profile_id)
        ]

    def rank(self, query: RankQuery) -> RankAnswer:
        """Every device for one job, best first."""
        with self._lock:
            if bad := self._unknown_ids({"job": query.job}):
                raise InvalidInputError.from_violations(bad)
            promises = self._decisions.promises(query.scope) if query.scope else ()
            devices = query.devices
            if query.scope:
                residents = Snapshot(scope=query.scope, pending=(), devices=devices)
                devices = self._decisions.with_grants(residents).devices
            rankings = rank(
                query.job, devices, self._observed.model, self._catalogue(), query.limits, query.objective, promises
            )
        return RankAnswer(rankings=rankings, model_version=self._predictor.version)

    def grants(self, scope: str) -> GrantTables:
        """Memory grants of a scope, as of its last decision with a clock."""
        with self._lock:
            return self._decisions.grants(scope)

    # --- facts ------------------------------------------------------------------------------------------------------

    def observe(self, reported: Sequence[Reported]) -> tuple[ObservationAnswer, ...]:
        """An answer for each observation. All but rejected ones are stored before this returns."""
        with self._lock:
            answers = self._observed.observe(reported)
            for observation, answer in zip(reported, answers, strict=True):
                if isinstance(observation, Outcome) and answer.result is ObservationResult.APPLIED:
                    self._decisions.apply_outcome(observation)
            return answers

    def log(self, at: int | None, limit: int) -> ObservationLog:
        """The newest entries of the log up to a point, and the online state at that point."""
        if limit > MAX_ENTRIES:
            raise LimitError("too many entries", value=limit, remedy=f"at most {MAX_ENTRIES}; go on from the last one")
        with self._lock:
            return self._observed.log(at, limit)

    def close(self) -> None:
        """Store the online state, so that the next start is quick."""
        with self._lock:
            self._observed.store_state()

    def register(self, profiles: Sequence[JobProfile]) -> tuple[str, ...]:
        """Store profiles, all or none; they are used from now on."""
        with self._lock:
            ids = self._profiles.add(profiles)
            self._observed.profiles_registered(profiles)
            return ids

    def profile(self, profile_id: str) -> JobProfile:
        """One profile; raises NotFoundError."""
        with self._lock:
            return self._profiles.get(profile_id)

    def profiles(self, workload: str, device_type: str) -> tuple[ProfileSummary, ...]:
        """A summary of each profile."""
        with self._lock:
            return self._profiles.summaries(workload, device_type)

    def model(self) -> ModelInfo:
        """The served model and the state of its online correction."""
        with self._lock:
            online = self._observed.state()
        return model_info(self._manifest, online)
