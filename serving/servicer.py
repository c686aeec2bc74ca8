"""The gRPC service: each method converts the request, asks the core, and converts the answer.

Decisions are computed in a worker process, where there is one, and everything else by the server process. Law: both
give the same answer, because a worker is a replica of the core on the same store.

Reports that wait while another is stored are stored together, in one transaction. Law: no report is acknowledged before
it is stored, and a report that cannot be stored harms no other.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import grpc

from interfere.errors import UnavailableError
from interfere.records import (
    DecisionQuery,
    ExplainQuery,
    JobProfile,
    MatrixQuery,
    ModeQuery,
    ObservationAnswer,
    PairQuery,
    ProbeQuery,
    RankQuery,
    Reported,
    ScopeLedger,
    ScopeList,
)
from interfere.records.checks import Inspection
from interfere.records.record import read_each
from interfere.serving.calls.fair_queue import TURN_POLL_S, DecisionTurns, current_caller
from interfere.serving.calls.interceptor import without_paths
from interfere.serving.kept_decisions import Decided, decision_in_numbers, explain, newest_decisions, scope_state
from interfere.serving.models.host import ModelHost
from interfere.serving.predicting import advise_mode, predict_matrix, predict_pairs, rank_devices, suggest_probes
from interfere.serving.service import PolicyCore
from interfere.serving.workers.pool import Late, WorkerPool
from interfere.time_budget import check_interruption, interruptible
from interfere.v1 import policy_pb2 as pb
from interfere.v1 import policy_pb2_grpc as rpc
from interfere.wire.converter import from_proto, pair_answer_to_proto, report_from_proto, to_proto

Context = grpc.ServicerContext
SHARE_OF_DEADLINE = 0.5  # of what a caller waits, for a worker; the rest is for the greedy plan on the same busy host
NO_DEADLINE_WAIT_S = 60.0  # the same for a call without a deadline: twice the processor time of the longest decision
MAX_GREEDY_CELLS = 1_000_000  # pending jobs times jobs and devices; the greedy plan takes 0.6 CPU s for 850,000
HOLD_S = 30.0  # that a report waits for a store that is away, where its caller waits as long
HELD_SHARE_OF_DEADLINE = 0.8  # of what the caller of a report waits; then it is told why, and sends the report again
MAX_GROUP = 1_000  # observations of several reports that are stored together: some tenths of a second


class PolicyServicer(rpc.PolicyServiceServicer):  # type: ignore[misc]  # protoc writes no types for services
    """The gRPC methods over the core. They raise the core's errors, which the interceptor turns into statuses."""

    _core: PolicyCore
    decided: Decided | None = None  # the last decision

    def __init__(self, core: PolicyCore) -> None:
        self._core = core

    def PredictSlowdowns(self, request: pb.PredictSlowdownsRequest, context: Context) -> pb.PredictSlowdownsResponse:
        """Predict the slowdowns of ordered pairs."""
        query = from_proto(PairQuery, request)
        answer = predict_pairs(self._core.state, query)
        self.remember_call(query)
        return pair_answer_to_proto(answer, columnar=request.columnar)

    def remember_call(self, query: PairQuery) -> None:
        """Do nothing with an answered query; the server keeps it for the next model."""

    def PredictMatrix(self, request: pb.PredictMatrixRequest, context: Context) -> pb.PredictMatrixResponse:
        """Predict the slowdowns of all victims beside all neighbours."""
        return to_proto(predict_matrix(self._core.state, from_proto(MatrixQuery, request)), pb.PredictMatrixResponse)

    def Match(self, request: pb.MatchRequest, context: Context) -> pb.MatchResponse:
        """Return one decision."""
        return self._decide(request)

    def core_of(self, scope: str) -> PolicyCore:
        """Return the core that decides for a scope."""
        return self._core

    def _decide(self, request: pb.MatchRequest, *, greedy_because: str = "") -> pb.MatchResponse:
        """Return one decision; the greedy plan without a search, where a reason for it is given."""
        core, start_s = self.core_of(request.scope), time.perf_counter()
        received = core.snapshots.read(request)
        snapshot = received.snapshot
        if request.validate_only:
            core.validate(snapshot)
            return pb.MatchResponse()
        plan, state = core.match(snapshot, received.digest, greedy_because=greedy_because)
        answer = to_proto(plan, pb.MatchResponse)
        core.remember(state.audit(plan.decision_id, snapshot.scope, received.content, answer.SerializeToString()))
        decision = decision_in_numbers(request, answer)
        decision = replace(decision, pending=len(snapshot.pending), devices=len(snapshot.devices))
        self.note(Decided(snapshot.scope, decision, time.perf_counter() - start_s))
        answer.base_id = core.snapshots.keep(received)
        return answer

    def note(self, decided: Decided) -> None:
        """Keep a decision: a worker sends it to the server, which logs it."""
        self.decided = decided

    def RankPlacements(self, request: pb.RankPlacementsRequest, context: Context) -> pb.RankPlacementsResponse:
        """Rank all devices for one job."""
        core, query = self.core_of(request.scope), from_proto(RankQuery, request)
        ledger = core.store.ledgers.read(query.scope) if query.scope else ScopeLedger(scope="")
        return to_proto(rank_devices(core.state, query, ledger, core.decisions.site_policy), pb.RankPlacementsResponse)

    def AdviseMode(self, request: pb.AdviseModeRequest, context: Context) -> pb.AdviseModeResponse:
        """Predict the effect of every sharing mode of one device on a set of jobs."""
        return to_proto(advise_mode(self._core.state, from_proto(ModeQuery, request)), pb.AdviseModeResponse)

    def SuggestProbes(self, request: pb.SuggestProbesRequest, context: Context) -> pb.SuggestProbesResponse:
        """Choose the neighbours beside which a job should run first."""
        return to_proto(suggest_probes(self._core.state, from_proto(ProbeQuery, request)), pb.SuggestProbesResponse)

    def Explain(self, request: pb.ExplainRequest, context: Context) -> pb.ExplainResponse:
        """Explain one job's action."""
        core, query = self.core_of(request.scope), from_proto(ExplainQuery, request)
        return to_proto(explain(query, core.store, core.state, core.decisions.site_policy), pb.ExplainResponse)

    def ListDecisions(self, request: pb.ListDecisionsRequest, context: Context) -> pb.ListDecisionsResponse:
        """Return the newest decisions of a scope."""
        decisions = newest_decisions(self._core.store, from_proto(DecisionQuery, request))
        return to_proto(decisions, pb.ListDecisionsResponse)

    def GetScope(self, request: pb.GetScopeRequest, context: Context) -> pb.GetScopeResponse:
        """Return the jobs on each device of a scope, and the waiting jobs with the reasons."""
        return to_proto(scope_state(self._core.store, request.scope), pb.GetScopeResponse)

    def ListScopes(self, request: pb.ListScopesRequest, context: Context) -> pb.ListScopesResponse:
        """Return all scopes with a clock, by name."""
        return to_proto(ScopeList(scopes=self._core.store.ledgers.summaries()), pb.ListScopesResponse)

    def ListGrants(self, request: pb.ListGrantsRequest, context: Context) -> pb.ListGrantsResponse:
        """Return the memory grants of a scope."""
        return to_proto(self._core.decisions.grants(request.scope or "default"), pb.ListGrantsResponse)

    def ReportObservations(
        self, request: pb.ReportObservationsRequest, context: Context
    ) -> pb.ReportObservationsResponse:
        """Learn and store a batch of observations."""
        answers = self._observe(report_from_proto(request), context)
        return pb.ReportObservationsResponse(answers=[to_proto(answer, pb.ObservationAnswer) for answer in answers])

    def _observe(self, reported: Sequence[Reported], context: Context) -> Sequence[ObservationAnswer]:
        """Learn and store observations."""
        return self._core.observe(reported)

    def GetObservationLog(self, request: pb.GetObservationLogRequest, context: Context) -> pb.GetObservationLogResponse:
        """Return reported observations, and the online state at a point of the log."""
        at = request.at_sequence if request.HasField("at_sequence") else None
        return to_proto(self._core.log(at, request.limit), pb.GetObservationLogResponse)

    def RegisterProfiles(self, request: pb.RegisterProfilesRequest, context: Context) -> pb.RegisterProfilesResponse:
        """Store profiles, all or none."""
        inspection = Inspection()
        profiles = inspection.read(
            "profiles", lambda: read_each(lambda message: from_proto(JobProfile, message), request.profiles)
        )
        inspection.done()
        ids = self._core.register(profiles or (), current_caller())
        return pb.RegisterProfilesResponse(profile_ids=ids)

    def RemoveProfiles(self, request: pb.RemoveProfilesRequest, context: Context) -> pb.RemoveProfilesResponse:
        """Remove registered profiles."""
        return pb.RemoveProfilesResponse(removed_ids=self._core.remove_profiles(request.profile_ids))

    def GetProfile(self, request: pb.GetProfileRequest, context: Context) -> pb.GetProfileResponse:
        """Return one profile."""
        return pb.GetProfileResponse(profile=to_proto(self._core.state.profiles.get(request.profile_id), pb.JobProfile))

    def ListProfiles(self, request: pb.ListProfilesRequest, context: Context) -> pb.ListProfilesResponse:
        """Return a summary of each profile."""
        summaries = self._core.state.profiles.summaries(request.workload, request.device_type)
        return pb.ListProfilesResponse(profiles=[to_proto(each, pb.ProfileSummary) for each in summaries])

    def GetModel(self, request: pb.GetModelRequest, context: Context) -> pb.GetModelResponse:
        """Return the served model."""
        return to_proto(self._core.model(), pb.GetModelResponse)


# --- reports that are stored together ---------------------------------------------------------------------------------


class _Report:
    """A report that waits to be stored."""

    __slots__ = ("answers", "error", "is_taken", "observations")

    def __init__(self, observations: Sequence[Reported]) -> None:
        self.observations, self.is_taken = observations, False
        self.answers: tuple[ObservationAnswer, ...] | None = None
        self.error: BaseException | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has its answers, or an error."""
        return self.answers is not None or self.error is not None


class ReportGroups:
    """Stores reports in the order in which they come, so that those of a group wait for the disk once. Thread-safe.

    While the store is away, reports wait here, inside their calls: as many as the queue of writes lets in, each as long
    as its caller has patience.
    """

    def __init__(self, store: Callable[[Sequence[Reported]], Sequence[ObservationAnswer]]) -> None:
        """Store reports with a function, which stores all observations that it gets or none."""
        self._store, self._condition = store, threading.Condition()
        self._waiting: deque[_Report] = deque()
        self._is_storing = False
        self._away: UnavailableError | None = None  # why the store could not be written last
        self._next_try_s = 0.0

    def observe(self, observations: Sequence[Reported], patience_s: float) -> tuple[ObservationAnswer, ...]:
        """Return the answers to a report once it is stored.

        Raises UnavailableError where the store stays away for `patience_s`.
        """
        report, end_s = _Report(observations), time.monotonic() + patience_s
        with self._condition:
            self._waiting.append(report)
        try:
            while not report.is_over:
                check_interruption()
                if self._away is not None and time.monotonic() >= end_s:
                    report.error = _not_confirmed(self._away)  # also where another thread tries just now
                elif group := self._next_group():
                    self._store_group(group)
        finally:
            self._leave(report)
        if report.error is not None:
            raise report.error
        assert report.answers is not None
        return report.answers

    def _next_group(self) -> list[_Report]:
        """Return the reports to store now; nothing where another thread stores some, or after a moment's wait."""
        with self._condition:
            if self._is_storing or time.monotonic() < self._next_try_s:
                self._condition.wait(TURN_POLL_S)
                return []
            group: list[_Report] = []
            count = 0
            for report in self._waiting:
                count += len(report.observations)
                if group and count > MAX_GROUP:
                    break
                group.append(report)
            for report in group:
                report.is_taken = True
            self._is_storing = bool(group)
            return group

    def _store_group(self, group: Sequence[_Report]) -> None:
        """Store reports together; one after another where that fails, since one of them may be at fault."""
        try:
            with interruptible(lambda: None):  # a report of several callers is stored whatever one of them does
                if not self._try(group) and len(group) > 1:
                    for report in group:
                        self._try([report])
        finally:
            with self._condition:
                for report in group:
                    report.is_taken = False
                self._waiting = deque(report for report in self._waiting if not report.is_over)
                self._is_storing = False
                self._condition.notify_all()

    def _try(self, group: Sequence[_Report]) -> bool:
        """Store reports in one transaction. Returns False where another try, with each by itself, may do better."""
        try:
            answers = iter(self._store([each for report in group for each in report.observations]))
        except UnavailableError as error:
            self._away = error
            if error.retry_after_s is None:  # a full disk: the operator has to do something
                for report in group:
                    report.error = _not_confirmed(error)
            else:
                self._next_try_s = time.monotonic() + error.retry_after_s
            return True
        except Exception as error:
            if len(group) == 1:
                group[0].error = error
            return False
        self._away = None
        for report in group:
            report.answers = tuple(islice(answers, len(report.observations)))
        return True

    def _leave(self, report: _Report) -> None:
        """Take a report out of those that wait. One that is being stored stays: its caller has gone and will send it
        again, which is safe."""
        with self._condition:
            if report in self._waiting and not report.is_taken:
                self._waiting.remove(report)


def _not_confirmed(error: UnavailableError) -> UnavailableError:
    return UnavailableError(
        f"this report is not confirmed as stored: {error.what}",
        value=error.value,
        remedy=f"send it again, which is safe; {error.remedy}",
        retry_after_s=error.retry_after_s,
    )


# --- the servicer of the server ---------------------------------------------------------------------------------------


class RoutedServicer(PolicyServicer):
    """The servicer of the server. Answers of workers are bytes, and are sent as they are."""

    _models: ModelHost
    _workers: WorkerPool | None
    _reports: ReportGroups

    def __init__(self, turns: DecisionTurns, *, waits_for_lock: bool = True) -> None:
        """Prepare a servicer that waits for turns of decisions. Call `use` before the first request arrives.

        `waits_for_lock`: a store that is locked is asked again as long as the caller waits, since a worker that has no
        processor may hold the lock. Where the store is a database that is away, decisions are refused at once.
        """
        self._turns, self._waits_for_lock = turns, waits_for_lock

    def use(self, core: PolicyCore, models: ModelHost, workers: WorkerPool | None) -> None:
        """Answer from this core from now on. Without workers the server process computes everything."""
        self._core, self._models, self._workers = core, models, workers
        self._reports = ReportGroups(core.observe)

    def note(self, decided: Decided) -> None:
        """Log a decision of this process."""
        decided.log(current_caller())

    def core_of(self, scope: str) -> PolicyCore:
        """Return the core that decides for a scope: a model on trial may decide for some."""
        return self._models.core_of(scope)

    def remember_call(self, query: PairQuery) -> None:
        """Keep an answered query: a new model answers it too before it is taken."""
        self._models.calls.remember(query)

    def Match(self, request: pb.MatchRequest, context: Context) -> Any:
        """Return one decision."""
        if request.validate_only:
            return super().Match(request, context)
        with self._turns.of_scope(request.scope or "default"):
            while True:
                try:
                    answer = self._plan(request, context)
                    if not request.HasField("delta"):
                        self._models.calls.remember_decision(request)
                    return answer
                except UnavailableError as error:  # a process without a processor may hold the lock of the store
                    if error.retry_after_s is None or not self._waits_for_lock:
                        raise
                check_interruption()

    def _observe(self, reported: Sequence[Reported], context: Context) -> Sequence[ObservationAnswer]:
        """Learn and store observations, together with those of other calls that wait."""
        remaining_s = context.time_remaining()
        patience_s = HOLD_S if remaining_s is None else min(HOLD_S, HELD_SHARE_OF_DEADLINE * remaining_s)
        return self._reports.observe(reported, patience_s)

    def _plan(self, request: pb.MatchRequest, context: Context) -> Any:
        """Return the decision of a worker, or a greedy plan where no worker answers in time."""
        answer = self._by_worker("Match", request, within_s=bounded_wait_s(request, context.time_remaining()))
        if isinstance(answer, Late):
            return self._decide(request, greedy_because=answer.text)
        return answer or self._decide(request)

    def Explain(self, request: pb.ExplainRequest, context: Context) -> Any:
        """Explain one job's action."""
        with self._turns.of_anybody():
            return self._by_worker("Explain", request) or super().Explain(request, context)

    def GetObservationLog(self, request: pb.GetObservationLogRequest, context: Context) -> Any:
        """Return reported observations, and the online state at a point of the log."""
        if not request.HasField("at_sequence"):
            return super().GetObservationLog(request, context)
        with self._turns.of_anybody():
            return self._by_worker("GetObservationLog", request) or super().GetObservationLog(request, context)

    def RankPlacements(self, request: pb.RankPlacementsRequest, context: Context) -> Any:
        """Rank all devices for one job. It waits for no worker, because a scheduler calls it for every job and needs a
        fast answer."""
        return self._by_worker("RankPlacements", request, wait=False) or super().RankPlacements(request, context)

    def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:
        """Return the models that can be served."""
        models = self._models.models()
        refused, trial = without_paths(models.refused), without_paths(models.trial)
        return to_proto(replace(models, refused=refused, trial=trial), pb.ListModelsResponse)

    def LoadModel(self, request: pb.LoadModelRequest, context: Context) -> pb.LoadModelResponse:
        """Serve another model."""
        change = (
            self._models.load(request.version)
            if request.version
            else self._models.take_published(shadow=not request.no_shadow)
        )
        return to_proto(change, pb.LoadModelResponse)

    def RollbackModel(self, request: pb.RollbackModelRequest, context: Context) -> pb.RollbackModelResponse:
        """Serve the model that was served before the present one."""
        return to_proto(self._models.rollback(), pb.RollbackModelResponse)

    def PinModel(self, request: pb.PinModelRequest, context: Context) -> pb.PinModelResponse:
        """Pin the served model, or release it."""
        pinned = self._models.pin(release=request.release)
        return pb.PinModelResponse(version=self._core.state.version, pinned=pinned)

    def _by_worker(
        self, method: str, request: Any, *, wait: bool = True, within_s: float = math.inf
    ) -> bytes | Late | None:
        """Return the bytes of a worker's answer; None where the server process has to compute the answer; Late where
        there is none within `within_s` seconds."""
        if self._workers is None:
            return None
        core = self._core if (scope := getattr(request, "scope", None)) is None else self.core_of(scope)
        knowing = self._models.knowing(core)
        return self._workers.ask(
            method, request.SerializeToString(), knowing, scope=scope or "", wait=wait, within_s=within_s
        )


def bounded_wait_s(request: pb.MatchRequest, time_remaining_s: float | None) -> float:
    """Return how long a worker may take to answer before the server answers with a greedy plan; infinity where that
    plan would take the server too long. `time_remaining_s`: to the deadline of the call; None without one."""
    if len(request.pending) * (len(request.pending) + len(request.devices)) > MAX_GREEDY_CELLS:
        return math.inf
    return NO_DEADLINE_WAIT_S if time_remaining_s is None else SHARE_OF_DEADLINE * time_remaining_s
