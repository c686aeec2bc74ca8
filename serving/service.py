"""What clients are told about the served model: its manifest, its training tables, its scores, its online state."""

from collections.abc import Sequence

import interfere
from interfere.errors import LimitError
from interfere.policy.answer.ranking import rank
from interfere.predict.manifest import Manifest
from interfere.records import (
    ExplainQuery,
    Explanation,
    GrantTables,
    JobProfile,
    MatrixAnswer,
    MatrixQuery,
    ModelDomain,
    ModelInfo,
    ModeQuery,
    ObservationAnswer,
    ObservationLog,
    ObservationResult,
    OnlineState,
    Outcome,
    PairAnswer,
    PairQuery,
    Plan,
    ProfileSummary,
    RankAnswer,
    RankQuery,
    Reported,
    Snapshot,
    TrainingTableSummary,
)
from interfere.records.mode_advice import ModeAdvice
from interfere.records.served_model import scores_of
from interfere.serving.decisions import DecisionMaker
from interfere.serving.explaining import Explainer
from interfere.serving.metrics import Metrics
from interfere.serving.predicting import advise_mode, predict_matrix, predict_pairs
from interfere.serving.request_checks import MAX_ENTRIES, check_job, check_predicted_pairs, check_snapshot
from interfere.serving.state import Knowledge, ServedModel, ServedState
from interfere.serving.state_writer import StateWriter
from interfere.store.protocols import Store


def model_info(manifest: Manifest, card: str, online: OnlineState) -> ModelInfo:
    """The served model with its card, and the state of its online correction."""
    return ModelInfo(
        version=manifest.version,
        model=manifest.model,
        matrix_model=manifest.model,
        matrix_limit_pairs=0 if manifest.matrix_limit is None else manifest.matrix_limit.pairs,
        selected_by=manifest.selected_by,
        card=card,
        fingerprint=manifest.fingerprint,
        created_at=manifest.created_at,
        workloads=manifest.workloads,
        domains=tuple(ModelDomain(device_type=d.device_type, mode=d.mode, metric=d.metric) for d in manifest.domains),
        calibrated=manifest.intervals.calibrated,
        trained_on=tuple(
            TrainingTableSummary(table=str(t["table"]), rows=int(t["rows"]), sha256=str(t["sha256"]))
            for t in manifest.trained_on
        ),
        scores=scores_of(manifest.scores),
        online=online,
        server_version=interfere.__version__,
    )


class PolicyCore:
    """One method per RPC. Thread-safe: readers use the current state and never wait for the one writer."""

    def __init__(
        self,
        *,
        model: ServedModel,
        store: Store,
        metrics: Metrics,
        time_budget_s: float,
        max_log_entries: int = 10_000_000,
        learns_beside: bool = False,
    ) -> None:
        """Serve a model. `time_budget_s`: default for decisions without one. `max_log_entries`: length of the log that
        is kept.

        `learns_beside`: learn a long log again in the background, while the previous model answers calls.
        """
        self._writer = StateWriter(model, store, metrics, max_log_entries, learns_beside=learns_beside)
        self._decisions = DecisionMaker(store, metrics, time_budget_s=time_budget_s)
        self._explainer = Explainer(store.audits, self._decisions)

    @property
    def state(self) -> ServedState:
        """The model, the profiles and the learned state that answers are computed from now."""
        return self._writer.state

    def warm_up(self) -> None:
        """Decide once about known jobs, so that the first request finds everything loaded."""
        state = self.state
        by_type: dict[str, list[str]] = {}
        for workload, device_type in state.model.shipped:
            by_type.setdefault(device_type, []).append(workload)
        for device_type, workloads in list(by_type.items())[:1]:
            self._decisions.warm_up(state.predictor, state.catalogue(), sorted(workloads)[:4], device_type)

    # --- model and state ---------------------------------------------------------------------------------------------

    def use_model(self, model: ServedModel) -> None:
        """Serve another model from the next call on. It learns the observations again in the background, while calls go
        on."""
        self._writer.use_model(model)

    def catch_up(self, last_sequence: int, profiles_digest: str, *, relearning: bool = False) -> None:
        """Learn the entries that another process wrote to the store, at least up to `last_sequence`.

        `relearning`: that process learns the log again; the present model answers until it has stored the result.
        """
        self._writer.catch_up(last_sequence, profiles_digest, relearning=relearning)

    # --- predictions ------------------------------------------------------------------------------------------------

    def predict(self, query: PairQuery) -> PairAnswer:
        """A prediction or an abstention for every pair; raises only on a broken request."""
        return predict_pairs(self.state, query)

    def predict_matrix(self, query: MatrixQuery) -> MatrixAnswer:
        """Both directions of a matrix. It does not abstain: a job without a profile is a violation with its path."""
        return predict_matrix(self.state, query)

    def advise_mode(self, query: ModeQuery) -> ModeAdvice:
        """Return the predicted performance of a set of jobs on one device under each sharing mode, and the recommended
        mode."""
        return advise_mode(self.state, query)

    # --- decisions --------------------------------------------------------------------------------------------------

    def match(self, snapshot: Snapshot, *, validate_only: bool = False) -> tuple[Plan, Knowledge] | None:
        """Return the decision for a snapshot, and the version of the knowledge that it was made from.

        A decision with an id is stored under this id. Returns None when the snapshot is only validated.
        """
        state = self.state
        check_snapshot(snapshot, state.profiles)
        check_predicted_pairs(snapshot, state)
        if validate_only:
            self._decisions.check_clock(snapshot)
            return None
        return self._decisions.decide(snapshot, state.predictor, state.catalogue()), state.knowledge

    def remember(self, decision_id: str, scope: str, knowledge: Knowledge, request: bytes, answer: bytes) -> None:
        """Store what a decision was made from, for explanations: bytes of a MatchRequest and of its answer."""
        self._explainer.remember(decision_id, scope, knowledge, request, answer)

    def explain(self, query: ExplainQuery) -> Explanation:
        """Return the reasons for one job's action, computed with current knowledge. Raises NotFoundError."""
        return self._explainer.explain(query, self.state)

    def rank(self, query: RankQuery) -> RankAnswer:
        """Every device for one job, best first."""
        state = self.state
        check_job(query.job, state.profiles)
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
        answers = self._writer.observe(reported)
        for observation, answer in zip(reported, answers, strict=True):
            if isinstance(observation, Outcome) and answer.result is ObservationResult.APPLIED:
                self._decisions.apply_outcome(observation)
        return answers

    def log(self, at: int | None, limit: int) -> ObservationLog:
        """The newest entries of the log up to a point, and the online state at that point."""
        if limit > MAX_ENTRIES:
            raise LimitError("too many entries", value=limit, remedy=f"at most {MAX_ENTRIES}; go on from the last one")
        return self._writer.log(at, limit)

    def store_state(self) -> None:
        """Store the online state, so that the next start is quick."""
        self._writer.store_state()

    @property
    def state_is_due(self) -> bool:
        """Whether so much was learned since the last stored state that a new one should be stored."""
        return self._writer.state_is_due

    def close(self) -> None:
        """Learn nothing again, and store the online state."""
        self._writer.close()

    def register(self, profiles: Sequence[JobProfile]) -> tuple[str, ...]:
        """Store profiles, all or none; they are used from now on.

        Raises InvalidInputError for one that the model cannot be asked about.
        """
        return self._writer.register(profiles)

    def remove_profiles(self, profile_ids: Sequence[str]) -> tuple[str, ...]:
        """Remove registered profiles, those set aside too; the ids that were there."""
        return self._writer.remove_profiles(profile_ids)

    def profile(self, profile_id: str) -> JobProfile:
        """Return the profile of an id. Raises NotFoundError."""
        return self.state.profiles.get(profile_id)

    def profiles(self, workload: str, device_type: str) -> tuple[ProfileSummary, ...]:
        """A summary of each profile."""
        return self.state.profiles.summaries(workload, device_type)

    def model(self) -> ModelInfo:
        """The served model and the state of its online correction."""
        state = self.state
        return model_info(state.model.manifest, state.model.card, state.learned.summary())
