"""The immutable state that every answer is computed from: one model, one catalogue of profiles, one learned state.

Law: a call reads one `ServedState` once and answers from it alone, so that no answer mixes two models or two states.
One writer replaces the state as a whole; readers never wait for it.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from interfere.errors import InterfereError, InvalidInputError, ModelError, Violation
from interfere.features.pair import FeatureEncoder
from interfere.policy.context import PlanningContext, ProfileLookup
from interfere.policy.site_policy import NO_ADDITIONS, SitePolicy
from interfere.predict.acceptance.goldens import read_goldens, replay_goldens
from interfere.predict.acceptance.score import Case
from interfere.predict.encoded_jobs import EncodedJobs
from interfere.predict.manifest import REMEDY, Domain, Manifest
from interfere.predict.measured import MeasuredPredictor
from interfere.predict.occlusion import Occlusion
from interfere.predict.online.prior import read_prior
from interfere.predict.online.stand_in_profiles import ResolveElsewhere
from interfere.predict.onnx import OnnxPredictor, load_model, with_measurements
from interfere.predict.residual import OnlineModel
from interfere.protocols import Predictor
from interfere.records import Job, JobProfile, JobRef, Progress, Snapshot
from interfere.records.checks import METRICS
from interfere.reports.text_forms import without_front_matter
from interfere.serving.learning.ledger import LearnedState
from interfere.serving.profiles import ProfileCatalogue
from interfere.store.profiles import StoredProfiles
from interfere.store.rows import DecisionAudit


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A published model with everything of its folder that the server uses."""

    predictor: Predictor
    manifest: Manifest
    card: str  # Markdown
    shipped: Mapping[tuple[str, str], JobProfile]  # its own profiles
    shipped_by_id: Mapping[str, JobProfile]  # what each source says in them
    occlusion: Occlusion  # explains the model inside `predictor`
    untaught: Callable[[ResolveElsewhere], OnlineModel]
    """Makes the model with an online correction that has learned nothing, from a function that finds a workload's
    profile on any device type."""
    folder: Path
    check_encodable: Callable[[JobProfile], None]  # raises InvalidInputError
    encoded_jobs: EncodedJobs  # the cache of `predictor`
    latencies: Mapping[str, Predictor]  # by metric: of the latencies of services, without online correction
    domains: tuple[Domain, ...]  # of the model and of those of latencies

    def catalogue(self, stored: StoredProfiles, before: ProfileCatalogue | None = None) -> ProfileCatalogue:
        """Return the catalogue of the model's own and of the stored profiles. Profiles that the model cannot predict
        are set aside.

        Profiles of `before`, an earlier catalogue of this model, stay the same objects and are not checked again.
        """
        known = before.registered() if before else {}
        usable: dict[str, JobProfile] = {}
        problems: dict[str, str] = {}
        for profile_id, found in stored.read(known):
            profile = known.get(profile_id, found)
            try:
                if isinstance(profile, JobProfile):
                    if profile_id not in known:
                        self.check_encodable(profile)
                    usable[profile_id] = profile
                else:
                    problems[profile_id] = profile or ""
            except InvalidInputError as error:
                problems[profile_id] = error.what
        return ProfileCatalogue(self.shipped_by_id, usable, problems, check=self.check_encodable, before=before)


def load_served_model(folder: Path, accepted: Collection[str] = ()) -> ServedModel:
    """Return the model of a published folder, after its graphs have answered the golden requests of the folder.

    `accepted`: digests of the models that may be served; empty: all. Raises ModelError where the folder must not be
    served.
    """
    try:
        return _load(folder, accepted)
    except InterfereError:
        raise
    except Exception as error:  # whatever an edited file with a right hash makes numpy or ONNX Runtime raise
        raise ModelError(f"the model folder cannot be read ({error!r})"[:300], value=folder, remedy=REMEDY) from None


def _load(folder: Path, accepted: Collection[str]) -> ServedModel:
    model, predictor = _measured_model(folder, accepted)
    prior = read_prior(folder)
    latencies = {name: _measured_model(folder / name, {digest}) for name, digest in model.manifest.latencies.items()}
    return ServedModel(
        predictor=predictor,
        manifest=model.manifest,
        card=without_front_matter((folder / "card.md").read_text(encoding="utf-8")),
        shipped=model.profiles,
        shipped_by_id={profile.profile_id: profile for profile in model.profile_sources},
        occlusion=Occlusion(model, model.profiles.values()),
        untaught=lambda elsewhere: OnlineModel(
            predictor,
            prior,
            measured=tuple(predictor.table),
            step_times=model.step_times,
            coordinates=model.coordinates,
            elsewhere=elsewhere,
        ),
        folder=folder,
        check_encodable=model.check_encodable,
        latencies={metric: of_metric for metric, (_, of_metric) in latencies.items()},
        domains=tuple(chain(model.manifest.domains, *(known.manifest.domains for known, _ in latencies.values()))),
        encoded_jobs=model.encoded_jobs,
    )


def _measured_model(folder: Path, accepted: Collection[str]) -> tuple[OnnxPredictor, MeasuredPredictor]:
    """Return the model of a folder that has answered its golden requests, and the predictor that answers measured pairs
    by their measurement. Raises ModelError for a model that is not accepted."""
    model = load_model(folder, FeatureEncoder(), accepted)
    replay_goldens(*read_goldens(folder), model, model.profiles)
    return model, with_measurements(model, folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedState:
    """The served model, the profiles from which jobs are predicted, and the state learned since the training."""

    model: ServedModel
    profiles: ProfileCatalogue
    learned: LearnedState

    @property
    def predictor(self) -> OnlineModel:
        """The model with what was learned."""
        return self.learned.model

    def predictor_of(self, metric: str) -> Predictor:
        """Return what predicts the slowdown of a metric. Raises InvalidInputError where the model knows none."""
        if metric in ("", METRICS[0]):
            return self.predictor
        if metric in self.model.latencies:
            return self.model.latencies[metric]
        known = ", ".join((METRICS[0], *self.model.latencies))
        remedy = f"ask for {known}; for latencies of services train on a table that holds such rows"
        violation = Violation(
            field="metric", what="is not predicted by the served model", value=repr(metric[:40]), remedy=remedy
        )
        raise InvalidInputError.from_violations([violation])

    @property
    def latency_predictor(self) -> Predictor | None:
        """What predicts the slowdown of the p99 of services; None where the model knows none."""
        return self.model.latencies.get("latency_p99")

    @property
    def version(self) -> str:
        """Version of the model."""
        return self.model.predictor.version

    def audit(self, decision_id: str, scope: str, request: bytes, answer: bytes) -> DecisionAudit:
        """Return the audit of a decision that was made from this state: request, answer, versions of model, log and
        profiles."""
        return DecisionAudit(
            decision_id=decision_id,
            scope=scope,
            request=request,
            answer=answer,
            model_version=self.version,
            learned_up_to=self.learned.last_sequence,
            facts_digest=self.profiles.digest(),
        )

    def changes_since(self, audit: DecisionAudit) -> tuple[str, ...]:
        """Return, in words, how this state differs from the state that the audited decision was made from."""
        changes = []
        if audit.model_version != self.version:
            changes.append(f"another model: {audit.model_version} decided, {self.version} explains")
        if audit.learned_up_to != self.learned.last_sequence:
            changes.append(f"log entries: {self.learned.last_sequence - audit.learned_up_to}")
        if audit.facts_digest != self.profiles.digest():
            changes.append("newer profiles")
        return tuple(changes)

    def context(self, snapshot: Snapshot, site_policy: SitePolicy = NO_ADDITIONS, **others: Any) -> PlanningContext:
        """Return the input of a decision about a snapshot. `others`: further fields, or others than this state has."""
        snapshot, catalogue = self.with_one_measured(snapshot)
        fields: dict[str, Any] = {
            "predictor": self.predictor,
            "catalogue": catalogue,
            "latency_predictor": self.latency_predictor,
            "custom_objective": site_policy.objective_of(snapshot),
            "custom_rules": site_policy.rules,
        }
        return PlanningContext(snapshot=snapshot, **(fields | others))

    def with_one_measured(self, snapshot: Snapshot) -> tuple[Snapshot, ProfileLookup]:
        """Return the snapshot of a decision, and the lookup of profiles and measured memory for it.

        A job of an unknown workload runs alone first. While one does, its device takes no other job, and the waiting
        jobs of its workload are predicted from what is known of all workloads.
        """
        measured = self._measured_alone(snapshot)
        if measured:
            kept = set(measured.values())
            devices = (replace(each, seats=1) if each.id in kept else each for each in snapshot.devices)
            snapshot = replace(snapshot, devices=tuple(devices))

        def profile(job: Job, device_type: str) -> JobProfile | None:
            found = self.profile_of_job(job, device_type)
            if found is None and (job.workload, device_type) in measured:
                return self.predictor.stand_ins.profile(job.workload, device_type, is_measured=True)
            return found

        return snapshot, ProfileLookup(profiles=profile, used_bytes=self.learned.used_bytes)

    def _measured_alone(self, snapshot: Snapshot) -> dict[tuple[str, str], str]:
        """Return, by workload and device type, the device on which a job of an unknown workload runs alone, where
        another job of it waits and can be predicted without a measurement."""
        stand_in = self.predictor.stand_ins.profile
        unknown = {
            (workload, device_type)
            for device_type in {device.type for device in snapshot.devices}
            for workload in {job.workload for job in snapshot.pending}
            if self.profile_of_workload(workload, device_type) is None
            and stand_in(workload, device_type) is None
            and stand_in(workload, device_type, is_measured=True) is not None
        }
        found: dict[tuple[str, str], str] = {}
        for device in snapshot.devices if unknown else ():
            for job in device.residents if len(device.residents) == 1 else ():
                key = job.workload, device.type
                if key in unknown and self.profile_of_job(job, device.type) is None:
                    found[key] = min(device.id, found.get(key, device.id))
        return found

    def profile_of_job(self, job: Job, device_type: str) -> JobProfile | None:
        """Return the profile of a job, or a stand-in profile with what was learned of its workload; None without
        either."""
        profile = self.profiles.of_job(job, device_type)
        return profile or self.predictor.stand_ins.profile(job.workload, device_type)

    def profile_of_workload(self, workload: str, device_type: str) -> JobProfile | None:
        """Return the combined profile of a workload on a device type; None where the workload has no profile there."""
        return self.profiles.of_workload(workload, device_type)

    def case_of(self, window: Progress) -> Case | None:
        """Return the case that a window shows; None for a job alone, and where a job has no profile."""
        victim, *neighbours = (
            self.profile_of_workload(name, window.device_type) for name in (window.workload, *window.company)
        )
        known = tuple(neighbour for neighbour in neighbours if neighbour is not None)
        if victim is None or not neighbours or len(known) < len(neighbours):
            return None
        slowdown = window.slowdown
        if math.isnan(slowdown):  # steps of the window against the step time of the profile
            steps_s = window.steps * victim.step_time_s
            slowdown = (window.end_s - window.start_s) / steps_s if steps_s > 0 else math.nan
        return Case(
            victim=victim, neighbours=known, device_type=window.device_type, mode=window.mode, slowdown=slowdown
        )

    def profile_of_ref(self, ref: JobRef, device_type: str, *, extrapolate: bool) -> tuple[JobProfile | None, str]:
        """Return the profile to predict from and an empty text, or None and the reason."""
        profile, reason = self.profiles.of_ref(ref, device_type, extrapolate=extrapolate)
        if profile is not None or not ref.workload:
            return profile, reason
        stand_in = self.predictor.stand_ins.profile(ref.workload, device_type)
        return (stand_in, "") if stand_in else (None, reason)
