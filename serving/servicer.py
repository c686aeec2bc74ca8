"""The gRPC service: each method converts the request, asks the core, and converts the answer."""

import grpc

from interfere.serving.service import PolicyCore
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
