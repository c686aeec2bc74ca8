"""The question of `interfere replay`: its options, their defaults, and which of them would change nothing.

Law: every option changes the answer or is refused; none is silently ignored.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path

from interfere.errors import InvalidInputError
from interfere.records.cluster import DEFAULT_SEATS
from interfere.sharing_modes import OptionalSharingMode
from interfere.sim.edge_world import CHECKPOINT_S
from interfere.sim.schedulers.names import DEADLINE_DEFAULT, DEFAULT, canonical_name, name_with_seats, parse_name
from interfere.sim.truth import UNKNOWN_ALONE

TIRESIAS_CHECKPOINT_S = 62.0  # the mean that Tiresias measured (Gu et al., NSDI 2019)
HIDDEN_SHARE = 0.3
NODE_GPUS = 8
TIE_DRAWS = 2  # further orders of jobs of one second; none with deadlines, where replays take long
COUNTED_CAP = 1.5  # slowdown past which jobs are counted where no cap is set


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The options of the command, each as its help line says. None: the default, which `resolved` fills in."""

    trace: Path
    truth: Path
    policies: tuple[str, ...] = ()
    predict: str = "truth"
    hide: float | None = None
    online: bool = False
    error: float = 0.0
    cap: float | None = None  # inf: none
    fill: bool = False
    unknown: str = UNKNOWN_ALONE
    device_type: str = ""
    mode: OptionalSharingMode = ""
    gpus: int | None = None
    per_node: int | None = None
    whole_nodes: bool | None = None
    load: float | None = None
    draws: int = 0
    tie_draws: int | None = None
    checkpoint_s: float | None = None
    slice_s: float = 0.0
    duration_error: float = 0.0
    guest_may_stay: bool | None = None
    most_shared_gpus: int | None = None
    seats: tuple[int, ...] = ()  # jobs that may share a device, each a policy of its own
    shuffle_ties: bool = False
    deadlines: str | None = None
    added: bool = False
    taken: bool = False
    seed: int = 0

    def resolved(self) -> "Question":
        """The question with every default filled in.

        What a pair must gain, how far a job may be slowed down and whether guests must end first is what the server
        does by default. Replays with deadlines have been without whole nodes from the start: published figures are
        comparable only so.
        """
        dated = self.deadlines is not None
        return replace(
            self,
            policies=self._policies(DEADLINE_DEFAULT if dated else DEFAULT),
            hide=HIDDEN_SHARE if self.hide is None else self.hide,
            cap=math.inf if self.cap is None else self.cap,
            per_node=NODE_GPUS if self.per_node is None else self.per_node,
            whole_nodes=not dated if self.whole_nodes is None else self.whole_nodes,
            checkpoint_s=(CHECKPOINT_S if dated else TIRESIAS_CHECKPOINT_S)
            if self.checkpoint_s is None
            else self.checkpoint_s,
            tie_draws=(0 if dated else TIE_DRAWS) if self.tie_draws is None else self.tie_draws,
            guest_may_stay=True if self.guest_may_stay is None else self.guest_may_stay,
        )

    def _policies(self, default: tuple[str, ...]) -> tuple[str, ...]:
        """The policies by their names of today, those that plan groups once for each number of seats."""
        names = tuple(map(canonical_name, self.policies)) or default
        seated = (name_with_seats(name, seats) or name for name in names for seats in self.seats or (DEFAULT_SEATS,))
        return tuple(dict.fromkeys(seated)) if self.seats else names


def check_options(question: Question) -> None:
    """Raises InvalidInputError for an unknown scheduler and for an option that would change nothing."""
    names = [parse_name(name) for name in question.resolved().policies]
    shares = any(name.sharing for name in names)
    stops = any(name.stops_jobs for name in names)
    dated = question.deadlines is not None
    # (option, is it given?, does it act here?, what it needs)
    needs: list[tuple[str, bool, bool, str]] = [
        ("--hide", question.hide is not None, question.predict == "model", "--predict model"),
        ("--per-node", question.per_node is not None, question.gpus is not None, "--gpus"),
        ("--added", question.added, dated, "--deadlines"),
        ("--taken", question.taken, dated, "--deadlines"),
        ("--predict", question.predict != "truth", shares, "a policy that shares"),
        ("--online", question.online, shares, "a policy that shares"),
        ("--error", question.error > 0, shares, "a policy that shares"),
        ("--cap", question.cap is not None, shares, "a policy that shares"),
        ("--unknown", question.unknown != UNKNOWN_ALONE, shares, "a policy that shares"),
        ("--unknown", question.unknown != UNKNOWN_ALONE, question.predict != "model", "--predict truth or mean"),
        ("--most-shared-gpus", question.most_shared_gpus is not None, shares, "a policy that shares"),
        (
            "--seats",
            bool(question.seats),
            any(name.plans_groups for name in names),
            "policy, or a policy with +matching of an order that stops no job and drops none",
        ),
        (
            "--guest-ends-first",
            question.guest_may_stay is False,
            all(name.seats == DEFAULT_SEATS for name in names),
            "policies that share in pairs only",
        ),
        (
            "--guest-may-stay and --guest-ends-first",
            question.guest_may_stay is not None,
            any(name.uses_guest_ends_first for name in names),
            "a policy that shares and stops no job",
        ),
        (
            "--slice-s",
            question.slice_s > 0,
            any(name.uses_slices for name in names),
            "a policy with an order that shares and stops no job",
        ),
        (
            "--any-node and --whole-nodes",
            question.whole_nodes is not None,
            any(name.uses_whole_nodes for name in names),
            "a policy with an order, or slots",
        ),
        (
            "--duration-error",
            question.duration_error > 0,
            any(name.knows_durations for name in names),
            "a policy that is told durations (sjf, srtf, +easy, +drop, slots, policy...)",
        ),
        (
            "--checkpoint-s",
            question.checkpoint_s is not None,
            stops or dated,
            "a policy that stops jobs (tiresias, srtf, or with +rematch), or --deadlines",
        ),
    ]
    for option, is_given, acts, need in needs:
        if is_given and not acts:
            raise InvalidInputError(
                f"{option} would change nothing: it needs {need}",
                value=f"policies {', '.join(question.policies)}" if question.policies else "the default policies",
                remedy="leave it out, or give what it needs",
            )
    if question.error and question.predict != "truth":
        raise InvalidInputError(
            "an error is put on the truth only",
            value=f"--error {question.error} --predict {question.predict}",
            remedy="leave one out",
        )
