"""The client of the policy service: one method per rpc, records in, records out, errors of `interfere.errors`."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self, TypeVar

from interfere.client.connections import Credentials, SentCalls
from interfere.client.fallback import Fallback
from interfere.errors import InvalidInputError, NotFoundError, UnavailableError
from interfere.records import (
    NAN,
    DecisionList,
    DecisionQuery,
    Device,
    ExplainQuery,
    Explanation,
    GrantTables,
    Job,
    JobProfile,
    JobRef,
    Limits,
    MatrixAnswer,
    MatrixQuery,
    ModeJob,
    ModelChange,
    ModelInfo,
    ModeQuery,
    ObjectiveKind,
    Observation,
    ObservationAnswer,
    ObservationLog,
    PairAnswer,
    PairQuery,
    Plan,
    ProbeAnswer,
    ProbeQuery,
    ProfileSummary,
    RankAnswer,
    RankQuery,
    ScopeList,
    ScopeQuery,
    ScopeState,
    ServedModels,
    Snapshot,
)
from interfere.records.limits import DEFAULT_RISK
from interfere.records.mode_advice import ModeAdvice
from interfere.records.predictions import DEFAULT_PROBES
from interfere.sharing_modes import SharingMode
from interfere.v1 import policy_pb2 as pb
from interfere.wire.converter import from_proto, to_proto
from interfere.wire.snapshots import SentSnapshots

POLL_S = 0.05  # while a server starts
T = TypeVar("T")
_SERVICE = pb.DESCRIPTOR.services_by_name["PolicyService"]
AnyJob = str | JobProfile | JobRef
"""A workload's name, the facts themselves, or a reference (for a profile id)."""


class PolicyClient:
    """A thread-safe client. Every method raises UnavailableError when no server answers within `timeout_s`, unless a
    `fallback` answers in its place (predict, match, rank, observe).

    >>> from interfere import Device, Job, PolicyClient, Progress, Snapshot
    >>> queue = (Job(id="j1", workload="gemm"), Job(id="j2", workload="request-server"))
    >>> window = {"start_s": 0.0, "end_s": 60.0, "device_type": "cpu-core", "company": ("request-server",)}
    >>> with PolicyClient("127.0.0.1:50051") as client:  # where `interfere serve` answers
    ...     plan = client.match(Snapshot(pending=queue, devices=(Device(id="d0", type="cpu-core"),)))
    ...     progress = Progress(observation_id="o1", job_id="j1", workload="gemm", slowdown=1.4, **window)
    ...     answers = client.observe([progress])
    >>> [(action.job_id, action.kind.value, action.partner_id) for action in plan.actions]
    [('j1', 'start_shared', 'j2'), ('j2', 'start_shared', 'j1')]
    >>> answers[0].result.value
    'applied'
    """

    def __init__(
        self,
        target: str = "127.0.0.1:50051",
        *,
        timeout_s: float = 10.0,
        fallback: Fallback | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """Prepare a client of the server at `target`. The connection is made when it is first used.

        Several servers on one database are one target, as gRPC writes it: `ipv4:10.0.0.1:50051,10.0.0.2:50051`, or
        `dns:///policy.site:50051`, a name with the addresses of all, which is resolved again when a connection ends.
        Calls take them in turn, but the decisions of a scope go to the same server while it lives. Where one goes away
        the same call goes to another: each may be sent twice without harm.

        `credentials`: the token to send and the certificates to use; None: those that the environment names. Without a
        token file, the token of a server on this host is found by `local_tokens`. Raises
        InvalidInputError where a file of theirs cannot be read, or a certificate of theirs has expired.
        """
        self.target = target
        self._timeout_s, self._fallback = timeout_s, fallback
        self._sent = SentSnapshots()
        self._calls = SentCalls(target, credentials or Credentials.of_environment())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._calls.close()

    def wait_ready(self, timeout_s: float = 30.0) -> None:
        """Wait until the server answers: it listens while its model still loads. Raises UnavailableError."""
        end_s = time.monotonic() + timeout_s
        self._calls.wait_connected(timeout_s)
        while True:
            try:
                self.model()
                return
            except UnavailableError:
                if time.monotonic() > end_s:
                    raise
                time.sleep(POLL_S)

    # --- predictions ------------------------------------------------------------------------------------------------

    def predict(
        self,
        jobs: Sequence[AnyJob],
        *,
        pairs: Iterable[tuple[int, ...]] = (),
        device_type: str = "",
        mode: SharingMode = SharingMode.TIMESLICE,
        device_memory_bytes: float = NAN,
        allow_extrapolation: bool = False,
        metric: str = "",
    ) -> PairAnswer:
        """Return the predicted slowdown of each ordered pair (victim, neighbour) of indices into `jobs`; without
        `pairs`, of all pairs of different jobs.

        A longer entry (victim, neighbour, neighbour, ...) asks for the victim's slowdown beside several neighbours at
        once. Such an answer is composed of the answers for its pairs, and its source says so. A pair that cannot be
        predicted abstains with a reason. An empty device type stands for the only device type that the model knows.
        `metric`: whose slowdown, that of a step where empty; of services one of the other `METRICS`.
        """
        query = PairQuery(
            jobs=_refs(jobs),
            pairs=tuple(pairs),
            device_type=device_type,
            mode=mode,
            device_memory_bytes=device_memory_bytes,
            allow_extrapolation=allow_extrapolation,
            metric=metric,
        )
        request = to_proto(query, pb.PredictSlowdownsRequest)
        request.columnar = True  # a server that does not know it answers with messages
        return self._with_fallback(
            lambda: self._ask("PredictSlowdowns", request, PairAnswer),
            lambda fallback, error: fallback.predict(query, error),
        )

    def predict_matrix(
        self,
        victims: Sequence[AnyJob],
        neighbours: Sequence[AnyJob] = (),
        *,
        device_type: str = "",
        mode: SharingMode = SharingMode.TIMESLICE,
        quantile: float = 0.5,
        device_memory_bytes: float = NAN,
        allow_extrapolation: bool = False,
    ) -> MatrixAnswer:
        """Return both directions for v victims and n neighbours, float32[v, n] each. Without neighbours, the victims
        are used.

        Raises InvalidInputError that names every job without a profile.
        """
        query = MatrixQuery(
            victims=_refs(victims),
            neighbours=_refs(neighbours),
            device_type=device_type,
            mode=mode,
            quantile=quantile,
            device_memory_bytes=device_memory_bytes,
            allow_extrapolation=allow_extrapolation,
        )
        return self._ask("PredictMatrix", query, MatrixAnswer)

    def advise_mode(
        self,
        jobs: Sequence[AnyJob],
        *,
        latency_targets_s: Mapping[int, float] = MappingProxyType({}),
        device_type: str = "",
        device_memory_bytes: float = NAN,
        allow_extrapolation: bool = False,
        risk: float = DEFAULT_RISK,
    ) -> ModeAdvice:
        """Return the predicted performance of two or more jobs on one device under each possible mode, the recommended
        mode, and measurements that would help.

        `latency_targets_s` gives a latency target for some jobs, by their index in `jobs`. A mode is not recommended if
        it would break a target that the job keeps alone, with a probability above `risk`. Numbers of a mode are NaN
        where nothing is known about it.
        """
        query = ModeQuery(
            jobs=tuple(
                ModeJob(job=ref, latency_target_s=latency_targets_s.get(k, NAN)) for k, ref in enumerate(_refs(jobs))
            ),
            device_type=device_type,
            device_memory_bytes=device_memory_bytes,
            allow_extrapolation=allow_extrapolation,
            risk=risk,
        )
        return self._ask("AdviseMode", query, ModeAdvice)

    def suggest_probes(
        self,
        job: AnyJob,
        *,
        neighbours: Sequence[AnyJob] = (),
        device_type: str = "",
        mode: SharingMode = SharingMode.TIMESLICE,
        count: int = DEFAULT_PROBES,
    ) -> ProbeAnswer:
        """Return the neighbours beside which a short run of the job teaches most about all its other pairs, in order.

        `neighbours` are the candidates; empty: all workloads of the model's training with a profile there.
        """
        query = ProbeQuery(
            job=_refs([job])[0],
            neighbours=tuple(_refs(neighbours)),
            device_type=device_type,
            mode=mode,
            count=count,
        )
        return self._ask("SuggestProbes", query, ProbeAnswer)

    # --- decisions --------------------------------------------------------------------------------------------------

    def match(self, snapshot: Snapshot) -> Plan:
        """Return the decision for a snapshot, or the stored decision where the same scope, snapshot id and content came
        before.

        Of a large cluster only what changed since the last snapshot of the scope is sent, where the server keeps that
        one. Raises ConflictError for other content under an id that was used before.
        """
        return self._with_fallback(
            lambda: self._decision(snapshot),
            lambda fallback, error: fallback.match(snapshot, error),
        )

    def _decision(self, snapshot: Snapshot) -> Plan:
        """Ask for a decision. Where the server refuses the changes of a snapshot, the whole is sent: it does not know
        what was changed, or it has reasons, which then name places in the snapshot."""
        request, start_s = self._sent.request(snapshot), time.monotonic()
        try:
            answer = self._call("Match", request)
        except (NotFoundError, InvalidInputError):
            if not request.HasField("delta"):
                raise
            left_s = self._timeout_s - (time.monotonic() - start_s)
            answer = self._call("Match", to_proto(snapshot, pb.MatchRequest), timeout_s=left_s)
        self._sent.keep(snapshot, answer.base_id)
        return from_proto(Plan, answer)

    def validate(self, snapshot: Snapshot) -> None:
        """Let the server check a snapshot without deciding. Raises InvalidInputError."""
        request = to_proto(snapshot, pb.MatchRequest)
        request.validate_only = True
        self._call("Match", request)

    def rank(
        self,
        job: Job,
        devices: Sequence[Device],
        *,
        limits: Limits | None = None,
        objective: ObjectiveKind = ObjectiveKind.AUTO,
        scope: str = "",
        objective_name: str = "",
    ) -> RankAnswer:
        """Rank devices for one job, the best first. With a scope, a device that is promised to the job comes first."""
        query = RankQuery(
            job=job,
            devices=tuple(devices),
            limits=limits or Limits(),
            objective=objective,
            scope=scope,
            objective_name=objective_name,
        )
        return self._with_fallback(
            lambda: self._ask("RankPlacements", query, RankAnswer),
            lambda fallback, error: fallback.rank(query, error),
        )

    def explain(self, decision_id: str, job_id: str, *, scope: str = "") -> Explanation:
        """Explain the action of a job: the contributions to its predictions, the alternatives, and their costs.

        Raises NotFoundError for a decision that is unknown or forgotten, or that did not include the job.
        """
        return self._ask("Explain", ExplainQuery(decision_id=decision_id, job_id=job_id, scope=scope), Explanation)

    def decisions(self, *, scope: str = "default", limit: int = 0, before_id: str = "") -> DecisionList:
        """Return the newest decisions of a scope that can be explained, newest first; 0 for `limit`: 20 of them."""
        query = DecisionQuery(scope=scope, limit=limit, before_id=before_id)
        return self._ask("ListDecisions", query, DecisionList)

    def scope(self, scope: str = "default") -> ScopeState:
        """Return the jobs on each device of a scope, and the waiting jobs with the reasons, as of the newest decision.

        Raises NotFoundError.
        """
        return self._ask("GetScope", ScopeQuery(scope=scope), ScopeState)

    def scopes(self) -> ScopeList:
        """Return all scopes of the server, each with its clock and the number of its promises and grants."""
        return self._ask("ListScopes", pb.ListScopesRequest(), ScopeList)

    def grants(self, *, scope: str = "default") -> GrantTables:
        """Return the memory grants of a scope, as of its last decision with a clock."""
        return self._ask("ListGrants", pb.ListGrantsRequest(scope=scope), GrantTables)

    # --- facts ------------------------------------------------------------------------------------------------------

    def observe(self, windows: Sequence[Observation]) -> tuple[ObservationAnswer, ...]:
        """Report measured windows, memory usages, outcomes or a rollback, in order. Safe to send again."""
        sent = [to_proto(window, pb.Observation) for window in windows]
        request = pb.ReportObservationsRequest(observations=sent)
        return self._with_fallback(
            lambda: tuple(
                from_proto(ObservationAnswer, answer) for answer in self._call("ReportObservations", request).answers
            ),
            lambda fallback, error: fallback.observe(windows, error),
        )

    def observation_log(self, *, at_sequence: int | None = None, limit: int = 20) -> ObservationLog:
        """Return the newest log entries up to an entry, newest first, and the online state at this entry."""
        request = pb.GetObservationLogRequest(at_sequence=at_sequence, limit=limit)
        return self._ask("GetObservationLog", request, ObservationLog)

    def register_profiles(self, facts: Sequence[JobProfile]) -> tuple[str, ...]:
        """Store profiles, all or none, and return their ids."""
        request = pb.RegisterProfilesRequest(profiles=[to_proto(profile, pb.JobProfile) for profile in facts])
        return tuple(self._call("RegisterProfiles", request).profile_ids)

    def get_profile(self, profile_id: str) -> JobProfile:
        """Return the profile of an id. Raises NotFoundError."""
        answer = self._call("GetProfile", pb.GetProfileRequest(profile_id=profile_id))
        return from_proto(JobProfile, answer.profile)

    def remove_profiles(self, profile_ids: Sequence[str]) -> tuple[str, ...]:
        """Remove registered profiles, and return the ids that were registered."""
        request = pb.RemoveProfilesRequest(profile_ids=profile_ids)
        return tuple(self._call("RemoveProfiles", request).removed_ids)

    def list_models(self) -> ServedModels:
        """Return the models that the server can serve, and why it refused the newest publication, if it did."""
        return self._ask("ListModels", pb.ListModelsRequest(), ServedModels)

    def load_model(self, version: str = "", *, shadow: bool = True) -> ModelChange:
        """Serve a model that was served before, or the published one where no version is given.

        Without `shadow` the published model is not compared with the present one on recent calls.
        """
        return self._ask("LoadModel", pb.LoadModelRequest(version=version, no_shadow=not shadow), ModelChange)

    def rollback_model(self) -> ModelChange:
        """Serve the model that was served before the present one, and pin it."""
        return self._ask("RollbackModel", pb.RollbackModelRequest(), ModelChange)

    def pin_model(self, *, release: bool = False) -> str:
        """Pin the served model, so that publications do not replace it, or with `release` unpin it. Returns the version
        of the served model."""
        return str(self._call("PinModel", pb.PinModelRequest(release=release)).version)

    def list_profiles(self, *, workload: str = "", device_type: str = "") -> tuple[ProfileSummary, ...]:
        """Return a summary of each profile, oldest first."""
        request = pb.ListProfilesRequest(workload=workload, device_type=device_type)
        answer = self._call("ListProfiles", request)
        return tuple(from_proto(ProfileSummary, summary) for summary in answer.profiles)

    def model(self) -> ModelInfo:
        """Return the description of the served model: version, scores, and the device types and sharing modes that it
        can predict."""
        return self._ask("GetModel", pb.GetModelRequest(), ModelInfo)

    # --- the wire ---------------------------------------------------------------------------------------------------

    def _ask(self, method: str, query: object, answer: type[T]) -> T:
        """Return the answer of a method as a record. `query`: the record of the request, or the request itself."""
        request_type = getattr(pb, _SERVICE.methods_by_name[method].input_type.name)
        request = query if isinstance(query, request_type) else to_proto(query, request_type)
        return from_proto(answer, self._call(method, request))

    def _call(self, method: str, request: Any, *, timeout_s: float | None = None) -> Any:
        return self._calls.send(method, request, self._timeout_s if timeout_s is None else timeout_s)

    def _with_fallback(self, call: Callable[[], T], replacement: Callable[[Fallback, UnavailableError], T]) -> T:
        try:
            return call()
        except UnavailableError as error:
            if self._fallback is None:
                raise
            return replacement(self._fallback, error)


def _refs(jobs: Sequence[AnyJob]) -> tuple[JobRef, ...]:
    return tuple(
        JobRef(workload=job) if isinstance(job, str) else JobRef(profile=job) if isinstance(job, JobProfile) else job
        for job in jobs
    )
