"""The catalogue of profiles that jobs are predicted from: the newest registered one, else the one of the model folder.

Law: the newest profile of a workload stays the same object, so that the predictor's cache of encoded jobs is hit.
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence

from interfere.errors import NotFoundError
from interfere.records import Job, JobProfile
from interfere.store.protocols import ProfileRepository
from interfere.wire.messages import JobRef, ProfileSummary


class ProfileCatalogue:
    """Profiles by id and the newest by workload and device type. Not thread-safe: the caller holds one lock."""

    def __init__(self, book: ProfileRepository, shipped: Iterable[JobProfile]) -> None:
        self._book = book
        self._by_id: dict[str, JobProfile] = {}  # oldest first
        self._newest: dict[tuple[str, str], JobProfile] = {}
        self._newest_anywhere: dict[str, JobProfile] = {}
        self._newest_id: dict[tuple[str, str], str] = {}
        self._registered: set[str] = set()
        self._digest = ""
        for profile in shipped:
            self._index(profile.profile_id, profile)
        for profile in book.all():
            self._index(profile.profile_id, profile)
            self._registered.add(profile.profile_id)

    def add(self, profiles: Sequence[JobProfile]) -> tuple[str, ...]:
        """Store profiles, all or none, then use them; their ids."""
        ids = self._book.put(profiles)
        for profile_id, profile in zip(ids, profiles, strict=True):
            self._index(profile_id, profile)
        self._registered.update(ids)
        return ids

    def _index(self, profile_id: str, profile: JobProfile) -> None:
        kept = self._by_id.pop(profile_id, profile)
        self._by_id[profile_id] = kept
        self._newest[kept.workload, kept.device_type] = kept
        self._newest_anywhere[kept.workload] = kept
        self._newest_id[kept.workload, kept.device_type] = profile_id
        self._digest = ""

    def digest(self) -> str:
        """A digest that changes whenever the newest profile of a workload does."""
        if not self._digest:
            newest = sorted(self._newest_id.items())
            self._digest = hashlib.sha256(repr(newest).encode()).hexdigest()[:16]
        return self._digest

    def digest_of(self, workloads: Collection[str]) -> str:
        """A digest that changes whenever the newest profile of one of these workloads does, on any device type."""
        newest = sorted((key, found) for key, found in self._newest_id.items() if key[0] in workloads)
        return hashlib.sha256(repr(newest).encode()).hexdigest()[:16]

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
        return self._newest.get((workload, device_type))

    def of_any_device(self, workload: str) -> JobProfile | None:
        """The newest profile of a workload on any device type."""
        return self._newest_anywhere.get(workload)

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
        """A summary of each profile, oldest first; empty filters match all."""
        return tuple(
            ProfileSummary(
                profile_id=profile_id,
                workload=profile.workload,
                device_type=profile.device_type,
                source=profile.source,
                step_time_s=profile.step_time_s,
                newest=self._newest[profile.workload, profile.device_type] is profile,
                registered=profile_id in self._registered,
            )
            for profile_id, profile in self._by_id.items()
            if workload in ("", profile.workload) and device_type in ("", profile.device_type)
        )
