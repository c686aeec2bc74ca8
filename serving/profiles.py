"""The catalogue of profiles that jobs are predicted from: shipped with the model, or registered.

The profiles of a workload on one device type, from all sources, are combined fact by fact (`interfere.data.facts`).

Law 1: the combined profile of a workload stays the same object until one of its sources reports a new profile, so that
the predictor's cache of encoded jobs is hit. Law 2: equal profiles in equal order give an equal catalogue, also after a
restart.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property

from interfere.data.facts import combine_facts
from interfere.errors import InvalidInputError, NotFoundError
from interfere.records import Job, JobProfile, JobRef, ProfileSummary

# Profiles of one workload on one device type that are kept: jobs may still name the ids of older ones.
MAX_VERSIONS = 8
_Key = tuple[str, str]  # workload, device type


class ProfileCatalogue:
    """Profiles by id, and combined by workload and device type. It never changes: any thread may read it."""

    def __init__(
        self,
        shipped: Mapping[str, JobProfile],
        registered: Mapping[str, JobProfile],
        problems: Mapping[str, str] | None = None,
        *,
        check: Callable[[JobProfile], None] = lambda _: None,
        before: "ProfileCatalogue | None" = None,
    ) -> None:
        """Index profiles by id: `shipped` with the model and `registered` by clients, oldest first. `problems` gives
        the faults of some.

        A combined profile of the catalogue `before` stays the same object where its sources have reported nothing
        since. `check` raises InvalidInputError for a profile that the model cannot predict. Where a combined profile
        fails this check, the newest registered profile of the workload is used alone.
        """
        self.problems = dict(problems or {})
        self._check = check
        self._by_id: dict[str, JobProfile] = {}  # oldest first
        self._newest_anywhere: dict[str, _Key] = {}  # of a workload, the key of its newest profile
        self._versions: dict[_Key, list[str]] = {}  # oldest first, as the store keeps them
        self._current: dict[_Key, tuple[str, ...]] = {}  # the newest of each source, oldest first
        self._combined: dict[_Key, JobProfile] = {}
        self._registered: frozenset[str] = frozenset()
        self._index(shipped, before)
        self._index(registered, before)
        self._registered = frozenset(registered.keys() & self._by_id.keys())

    def _index(self, profiles: Mapping[str, JobProfile], before: "ProfileCatalogue | None" = None) -> None:
        changed: dict[_Key, None] = {}
        for profile_id, profile in profiles.items():
            kept = self._by_id.pop(profile_id, profile)
            self._by_id[profile_id] = kept
            key = kept.workload, kept.device_type
            self._newest_anywhere[kept.workload] = key
            self._versions[key] = [id_ for id_ in self._versions.get(key, ()) if id_ != profile_id] + [profile_id]
            self._forget_superseded(key)
            changed[key] = None
        for key in changed:
            self._combine(key, before)

    def _forget_superseded(self, key: _Key) -> None:
        """Keep the newest `MAX_VERSIONS` profiles: first drop profiles that a newer one of the same source replaces,
        then the oldest."""
        versions = self._versions[key]
        if len(versions) > MAX_VERSIONS:
            current = self._newest_of_sources(versions)
            superseded = next((id_ for id_ in versions if id_ not in current), versions[0])
            self._versions[key] = [id_ for id_ in versions if id_ != superseded]
            self._by_id.pop(superseded, None)

    def _newest_of_sources(self, versions: Sequence[str]) -> tuple[str, ...]:
        by_source: dict[str, str] = {}
        for profile_id in versions:
            source = self._by_id[profile_id].source
            by_source.pop(source, None)
            by_source[source] = profile_id
        return tuple(by_source.values())

    def _combine(self, key: _Key, before: "ProfileCatalogue | None") -> None:
        current = self._newest_of_sources(self._versions[key])
        if current == self._current.get(key):
            return
        if before and current == before._current.get(key):
            self._current[key], self._combined[key] = current, before._combined[key]
            return
        profiles = [self._by_id[profile_id] for profile_id in current]
        combined = combine_facts(profiles)
        if len(profiles) > 1:
            try:
                self._check(combined)
            except InvalidInputError:
                combined = profiles[-1]
        self._current[key], self._combined[key] = current, combined

    def with_registered(self, by_id: Mapping[str, JobProfile]) -> "ProfileCatalogue":
        """Return a catalogue with further registered profiles, given by their ids."""
        catalogue = ProfileCatalogue({}, {}, check=self._check)
        catalogue._by_id, catalogue._versions = dict(self._by_id), dict(self._versions)
        catalogue._current, catalogue._combined = dict(self._current), dict(self._combined)
        catalogue._newest_anywhere = dict(self._newest_anywhere)
        catalogue._index(by_id)
        catalogue._registered = (self._registered | by_id.keys()) & catalogue._by_id.keys()
        catalogue.problems = self.problems
        return catalogue

    def registered(self) -> dict[str, JobProfile]:
        """Return the profiles that clients registered, by id, oldest first. Reuse these ids: they are hashes of
        contents, and slow to compute."""
        return {profile_id: profile for profile_id, profile in self._by_id.items() if profile_id in self._registered}

    @cached_property
    def _digest(self) -> str:
        current = sorted(self._current.items()), sorted(self._newest_anywhere.items())
        return hashlib.sha256(repr(current).encode()).hexdigest()[:16]

    def digest(self) -> str:
        """Return a digest that changes whenever the combined profile of a workload changes."""
        return self._digest

    def digest_of(self, workloads: Collection[str]) -> str:
        """Return a digest that changes whenever the combined profile of one of these workloads changes, on any device
        type."""
        current = sorted((key, found) for key, found in self._current.items() if key[0] in workloads)
        anywhere = sorted((name, key) for name, key in self._newest_anywhere.items() if name in workloads)
        return hashlib.sha256(repr((current, anywhere)).encode()).hexdigest()[:16]

    def is_newest(self, profile: JobProfile) -> bool:
        """Whether this is the newest profile of its source, so that its facts count."""
        return profile.profile_id in self._current.get((profile.workload, profile.device_type), ())

    def changes_since(self, before: "ProfileCatalogue") -> list[JobProfile]:
        """Return the registered profiles that only one of the two catalogues contains."""
        return [
            profile
            for one, other in ((self, before), (before, self))
            for profile_id, profile in one._by_id.items()
            if profile_id in one._registered and profile_id not in other._by_id
        ]

    def get(self, profile_id: str) -> JobProfile:
        """Return the profile of an id. Raises NotFoundError."""
        if profile_id not in self._by_id:
            raise NotFoundError(
                "no profile of this id",
                value=profile_id,
                remedy="interfere profiles list (ListProfiles) names all; interfere profiles register adds",
            )
        return self._by_id[profile_id]

    def knows(self, profile_id: str) -> bool:
        """Whether the id is in use."""
        return profile_id in self._by_id

    def of_workload(self, workload: str, device_type: str) -> JobProfile | None:
        """Return the combined profile of a workload on a device type; None where the workload has no profile there."""
        return self._combined.get((workload, device_type))

    def of_any_device(self, workload: str) -> JobProfile | None:
        """Return the combined profile of a workload on the device type on which it was profiled last."""
        key = self._newest_anywhere.get(workload)
        return self._combined.get(key) if key else None

    def of_job(self, job: Job, device_type: str) -> JobProfile | None:
        """Return the profile that a job names, if it is of this device type; else the combined profile of the job's
        workload."""
        named = self._by_id.get(job.profile_id)
        return named if named and named.device_type == device_type else self.of_workload(job.workload, device_type)

    def of_ref(self, ref: JobRef, device_type: str, *, extrapolate: bool) -> tuple[JobProfile | None, str]:
        """Return the profile to predict from and an empty text, or None and the reason with its remedy."""
        if ref.workload:
            profile = self.of_workload(ref.workload, device_type)
            remedy = "interfere profiles register (RegisterProfiles), or measure it: interfere profile solo"
            return profile, "" if profile else f"no profile of workload {ref.workload!r} on {device_type}: {remedy}"
        named = ref.profile or self._by_id.get(ref.profile_id)
        if named is None:
            return None, f"no profile has the id {ref.profile_id!r}: interfere profiles list (ListProfiles) lists them"
        if named.device_type != device_type and not extrapolate:
            remedy = "ask for that device type, or set allow_extrapolation"
            return None, f"the profile of {named.workload!r} is of {named.device_type}, not of {device_type}: {remedy}"
        return named, ""

    def summaries(self, workload: str, device_type: str) -> tuple[ProfileSummary, ...]:
        """Return a summary of each profile, oldest first, then of each unusable profile. Empty filters match all
        profiles."""
        set_aside = (
            ProfileSummary(profile_id=profile_id, registered=True, problem=problem)
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
                newest=self.is_newest(profile),
                registered=profile_id in self._registered,
            )
            for profile_id, profile in self._by_id.items()
            if workload in ("", profile.workload) and device_type in ("", profile.device_type)
        )
        return (*usable, *set_aside)
