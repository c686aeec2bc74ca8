"""Where a call is computed: decisions in a worker process, where there is one, everything else by the server itself.

Law: who computes an answer changes nothing in it: a worker is a replica of the core on the same store.
"""

from typing import Any

from interfere.serving.calls.turns import DecisionTurns
from interfere.serving.models.host import ModelHost
from interfere.serving.service import PolicyCore
from interfere.serving.servicer import Context, PolicyServicer
from interfere.serving.workers.pool import WorkerPool
from interfere.v1 import policy_pb2 as pb
from interfere.wire import model


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
