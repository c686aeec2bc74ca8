"""The catalogue of profiles that jobs are predicted from: the newest registered one, else the one of the model folder.

Law: the newest profile of a workload stays the same object, so that the predictor's cache of encoded jobs is hit.
"""

import hashlib
from collections.abc import Collection, Mapping
from functools import cached_property

from interfere.errors import NotFoundError
from interfere.records import NAN, Job, JobProfile
from interfere.wire.messages import JobRef, ProfileSummary

# Profiles of one workload on one device type that are kept: jobs may still name the ids of older ones.
MAX_VERSIONS = 8


class ProfileCatalogue:
    """Profiles by id and the newest by workload and device type. It never changes: any thread may read it."""

    def __init__(
        self,
        shipped: Mapping[str, JobProfile],
        registered: Mapping[str, JobProfile],
        problems: Mapping[str, str] | None = None,
    ) -> None:
        """By profile id: `shipped` with the model; `registered` by clients, oldest first; `problems` of those that are
        set aside."""
        self.problems = dict(problems or {})
        self._by_id: dict[str, JobProfile] = {}  # oldest first
        self._newest_anywhere: dict[str, str] = {}  # the id of the newest profile of a workload on any device type
        self._newest_id: dict[tuple[str, str], str] = {}
        self._versions: dict[tuple[str, str], list[str]] = {}  # oldest first, as the store keeps them
        self._registered: frozenset[str] = frozenset()
        self._index(shipped)
        self._index(registered)
        self._registered = frozenset(registered.keys() & self._by_id.keys())

    def _index(self, profiles: Mapping[str, JobProfile]) -> None:
        for profile_id, profile in profiles.items():
            kept = self._by_id.pop(profile_id, profile)
            self._by_id[profile_id] = kept
            self._newest_id[kept.workload, kept.device_type] = profile_id
            self._newest_anywhere[kept.workload] = profile_id
            older = [id_ for id_ in self._versions.get((kept.workload, kept.device_type), ()) if id_ != profile_id]
            self._versions[kept.workload, kept.device_type] = [*older[-(MAX_VERSIONS - 1) :], profile_id]
            for superseded in older[: -(MAX_VERSIONS - 1)]:
                self._by_id.pop(superseded, None)

    def with_registered(self, by_id: Mapping[str, JobProfile]) -> "ProfileCatalogue":
        """The catalogue after these profiles were registered too, by their ids."""
        catalogue = ProfileCatalogue({}, {})
        catalogue._by_id, catalogue._newest_id = dict(self._by_id), dict(self._newest_id)
        catalogue._newest_anywhere, catalogue._versions = dict(self._newest_anywhere), dict(self._versions)
        catalogue._index(by_id)
        catalogue._registered = (self._registered | by_id.keys()) & catalogue._by_id.keys()
        catalogue.problems = self.problems
        return catalogue

    def registered(self) -> dict[str, JobProfile]:
        """What clients registered by id, oldest first. Ids are hashes of contents: keep them, they take time."""
        return {profile_id: profile for profile_id, profile in self._by_id.items() if profile_id in self._registered}

    def _newest(self, workload: str, device_type: str) -> JobProfile | None:
        return self._by_id.get(self._newest_id.get((workload, device_type), ""))

    @cached_property
    def _digest(self) -> str:
        newest = sorted(self._newest_id.items()), sorted(self._newest_anywhere.items())
        return hashlib.sha256(repr(newest).encode()).hexdigest()[:16]

    def digest(self) -> str:
        """A digest that changes whenever the newest profile of a workload does."""
        return self._digest

    def digest_of(self, workloads: Collection[str]) -> str:
        """A digest that changes whenever the newest profile of one of these workloads does, on any device type."""
        newest = sorted((key, found) for key, found in self._newest_id.items() if key[0] in workloads)
        anywhere = sorted((key, found) for key, found in self._newest_anywhere.items() if key in workloads)
        return hashlib.sha256(repr((newest, anywhere)).encode()).hexdigest()[:16]

    def is_newest(self, profile: JobProfile) -> bool:
        """Whether the newest profile of its workload on its device type is this one."""
        return self._newest_id.get((profile.workload, profile.device_type)) == profile.profile_id

    def changes_since(self, before: "ProfileCatalogue") -> list[JobProfile]:
        """The registered profiles that only one of the two catalogues has."""
        return [
            profile
            for one, other in ((self, before), (before, self))
            for profile_id, profile in one._by_id.items()
            if profile_id in one._registered and profile_id not in other._by_id
        ]

    def get(self, profile_id: str) -> JobProfile:
        """One profile; raises NotFoundError."""
        if profile_id not in self._by_id:
            raise NotFoundError(
                "no profile of this id", value=profile_id, remedy="ListProfiles names all; RegisterProfiles adds"
            )
        return self._by_id[profile_id]

    def knows(self, profile_id: str) -> bool:
        """Whether the id is in use."""
        return profile_id in self._by_id

    def of_workload(self, workload: str, device_type: str) -> JobProfile | None:
        """The newest profile of a workload on a device type."""
        return self._newest(workload, device_type)

    def of_any_device(self, workload: str) -> JobProfile | None:
        """The newest profile of a workload on any device type."""
        return self._by_id.get(self._newest_anywhere.get(workload, ""))

    def of_job(self, job: Job, device_type: str) -> JobProfile | None:
        """The profile that a job names, if it is of this device type, else the newest of its workload."""
        named = self._by_id.get(job.profile_id)
        return named if named and named.device_type == device_type else self.of_workload(job.workload, device_type)

    def of_ref(self, ref: JobRef, device_type: str, *, extrapolate: bool) -> tuple[JobProfile | None, str]:
        """The profile to predict from, or why there is none and what to do."""
        if ref.workload:
            profile = self.of_workload(ref.workload, device_type)
            remedy = "register one (RegisterProfiles), or measure it: interfere profile solo"
            return profile, "" if profile else f"no profile of workload {ref.workload!r} on {device_type}: {remedy}"
        named = ref.profile or self._by_id.get(ref.profile_id)
        if named is None:
            return (
                None,
                f"no profile has the id {ref.profile_id!r}: RegisterProfiles returns ids, ListProfiles lists them",
            )
        if named.device_type != device_type and not extrapolate:
            remedy = "ask for that device type, or set allow_extrapolation"
            return None, f"the profile of {named.workload!r} is of {named.device_type}, not of {device_type}: {remedy}"
        return named, ""

    def summaries(self, workload: str, device_type: str) -> tuple[ProfileSummary, ...]:
        """A summary of each profile, oldest first; empty filters match all. Those set aside come last."""
        set_aside = (
            ProfileSummary(
                profile_id=profile_id,
                workload="",
                device_type="",
                source="",
                step_time_s=NAN,
                newest=False,
                registered=True,
                problem=problem,
            )
            for profile_id, problem in self.problems.items()
            if not workload and not device_type
        )
        usable = (
            ProfileSummary(
                profile_id=profile_id,
                workload=profile.workload,
                device_type=profile.device_type,
                source=profile.source,
                step_time_s=profile.step_time_s,
                newest=self._newest_id[profile.workload, profile.device_type] == profile_id,
                registered=profile_id in self._registered,
            )
            for profile_id, profile in self._by_id.items()
            if workload in ("", profile.workload) and device_type in ("", profile.device_type)
        )
        return (*usable, *set_aside)
