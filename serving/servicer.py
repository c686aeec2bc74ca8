"""The gRPC service: each method converts the request, asks the core, and converts the answer.

Decisions are computed in a worker process, where there is one, everything else by the server itself. Law: who computes
an answer changes nothing in it, because a worker is a replica of the core on the same store.
"""

from typing import Any

import grpc

from interfere.serving.calls.turns import DecisionTurns
from interfere.serving.models.host import ModelHost
from interfere.serving.service import PolicyCore
from interfere.serving.workers.pool import WorkerPool
from interfere.v1 import policy_pb2 as pb
from interfere.v1 import policy_pb2_grpc as rpc
from interfere.wire import cluster, explanations, grants, model, observations, plans, predictions, profiles
from interfere.wire.mode_advice.converters import mode_advice_to_proto, mode_query_from_proto
from interfere.wire.scalars import Inspection

Context = grpc.ServicerContext


class PolicyServicer(rpc.PolicyServiceServicer):  # type: ignore[misc]  # protoc writes no types for services
    """Raises the core's errors; the interceptor turns them into statuses."""

    _core: PolicyCore

    def __init__(self, core: PolicyCore) -> None:
        self._core = core

    def PredictSlowdowns(self, request: pb.PredictSlowdownsRequest, context: Context) -> pb.PredictSlowdownsResponse:
        """Slowdowns of ordered pairs."""
        answer = self._core.predict(predictions.pair_query_from_proto(request))
        return predictions.pair_answer_to_proto(answer, columnar=request.columnar)

    def PredictMatrix(self, request: pb.PredictMatrixRequest, context: Context) -> pb.PredictMatrixResponse:
        """Slowdowns of all victims beside all neighbours."""
        query = predictions.matrix_query_from_proto(request)
        return predictions.matrix_answer_to_proto(self._core.predict_matrix(query))

    def Match(self, request: pb.MatchRequest, context: Context) -> pb.MatchResponse:
        """One decision."""
        decided = self._core.match(cluster.snapshot_from_proto(request), validate_only=request.validate_only)
        if decided is None:
            return pb.MatchResponse()
        plan, knowledge = decided
        answer = plans.plan_to_proto(plan)
        scope = request.scope or "default"
        self._core.remember(plan.decision_id, scope, knowledge, request.SerializeToString(), answer.SerializeToString())
        return answer

    def RankPlacements(self, request: pb.RankPlacementsRequest, context: Context) -> pb.RankPlacementsResponse:
        """One job against every device."""
        return cluster.rank_answer_to_proto(self._core.rank(cluster.rank_query_from_proto(request)))

    def AdviseMode(self, request: pb.AdviseModeRequest, context: Context) -> pb.AdviseModeResponse:
        """A set of jobs under every sharing mode of one device."""
        return mode_advice_to_proto(self._core.advise_mode(mode_query_from_proto(request)))

    def Explain(self, request: pb.ExplainRequest, context: Context) -> pb.ExplainResponse:
        """Why one job got its action."""
        query = explanations.explain_query_from_proto(request)
        return explanations.explanation_to_proto(self._core.explain(query))

    def ListGrants(self, request: pb.ListGrantsRequest, context: Context) -> pb.ListGrantsResponse:
        """Memory grants of a scope."""
        return grants.tables_to_proto(self._core.grants(request.scope or "default"))

    def ReportObservations(
        self, request: pb.ReportObservationsRequest, context: Context
    ) -> pb.ReportObservationsResponse:
        """A batch of measurements."""
        return observations.answers_to_proto(self._core.observe(observations.report_from_proto(request)))

    def GetObservationLog(self, request: pb.GetObservationLogRequest, context: Context) -> pb.GetObservationLogResponse:
        """Reported observations, and the online state at a point of the log."""
        at = request.at_sequence if request.HasField("at_sequence") else None
        return observations.log_to_proto(self._core.log(at, request.limit))

    def RegisterProfiles(self, request: pb.RegisterProfilesRequest, context: Context) -> pb.RegisterProfilesResponse:
        """Store profiles, all or none."""
        inspection = Inspection()
        facts = inspection.read_all("profiles", request.profiles, profiles.profile_from_proto)
        inspection.done()
        return pb.RegisterProfilesResponse(profile_ids=self._core.register(facts))

    def RemoveProfiles(self, request: pb.RemoveProfilesRequest, context: Context) -> pb.RemoveProfilesResponse:
        """Remove registered profiles."""
        return pb.RemoveProfilesResponse(removed_ids=self._core.remove_profiles(request.profile_ids))

    def GetProfile(self, request: pb.GetProfileRequest, context: Context) -> pb.GetProfileResponse:
        """One profile."""
        return pb.GetProfileResponse(profile=profiles.profile_to_proto(self._core.profile(request.profile_id)))

    def ListProfiles(self, request: pb.ListProfilesRequest, context: Context) -> pb.ListProfilesResponse:
        """A summary of each profile."""
        summaries = self._core.profiles(request.workload, request.device_type)
        return pb.ListProfilesResponse(profiles=[profiles.summary_to_proto(summary) for summary in summaries])

    def GetModel(self, request: pb.GetModelRequest, context: Context) -> pb.GetModelResponse:
        """The served model."""
        return model.model_to_proto(self._core.model())


class RoutedServicer(PolicyServicer):
    """The servicer of the server. Answers of workers are bytes, and are sent as they are."""

    _models: ModelHost
    _workers: WorkerPool | None

    def __init__(self, turns: DecisionTurns) -> None:
        """It must not be asked before `use`."""
        self._turns = turns

    def use(self, core: PolicyCore, models: ModelHost, workers: WorkerPool | None) -> None:
        """Answer from this core from now on. Without workers the server computes everything."""
        self._core, self._models, self._workers = core, models, workers

    def Match(self, request: pb.MatchRequest, context: Context) -> Any:
        """One decision."""
        if request.validate_only:
            return super().Match(request, context)
        with self._turns.of_scope(request.scope or "default"):
            return self._by_worker("Match", request) or super().Match(request, context)

    def Explain(self, request: pb.ExplainRequest, context: Context) -> Any:
        """Why one job got its action."""
        with self._turns.of_anybody():
            return self._by_worker("Explain", request) or super().Explain(request, context)

    def GetObservationLog(self, request: pb.GetObservationLogRequest, context: Context) -> Any:
        """Reported observations, and the online state at a point of the log."""
        if not request.HasField("at_sequence"):
            return super().GetObservationLog(request, context)
        with self._turns.of_anybody():
            return self._by_worker("GetObservationLog", request) or super().GetObservationLog(request, context)

    def RankPlacements(self, request: pb.RankPlacementsRequest, context: Context) -> Any:
        """One job against every device. It waits for no worker: a scheduler asks for every job, and needs it soon."""
        return self._by_worker("RankPlacements", request, wait=False) or super().RankPlacements(request, context)

    def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:
        """The models that can be served."""
        return model.models_to_proto(self._models.models())

    def LoadModel(self, request: pb.LoadModelRequest, context: Context) -> pb.LoadModelResponse:
        """Serve another model."""
        change = self._models.load(request.version) if request.version else self._models.take_published()
        return pb.LoadModelResponse(version=change.version, previous_version=change.previous_version)

    def RollbackModel(self, request: pb.RollbackModelRequest, context: Context) -> pb.RollbackModelResponse:
        """Serve the model before this one."""
        change = self._models.rollback()
        return pb.RollbackModelResponse(version=change.version, previous_version=change.previous_version)

    def PinModel(self, request: pb.PinModelRequest, context: Context) -> pb.PinModelResponse:
        """Hold on to the served model, or release it."""
        pinned = self._models.pin(release=request.release)
        return pb.PinModelResponse(version=self._core.state.version, pinned=pinned)

    def _by_worker(self, method: str, request: Any, *, wait: bool = True) -> bytes | None:
        """The bytes of a worker's answer; None where the server has to compute it."""
        return self._workers.ask(method, request.SerializeToString(), wait=wait) if self._workers else None
