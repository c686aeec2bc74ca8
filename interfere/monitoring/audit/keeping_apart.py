"""What to type so that a scheduler keeps workloads apart: for Slurm and for Kubernetes, with interfere and without.

With interfere a job says how far it may be slowed down, and the matching keeps it from neighbours that slow it more.
Without, Kubernetes has anti-affinity between pods, which keeps them off each other's nodes; Slurm has no such rule
between jobs, so nodes get features and jobs ask for them.
"""

import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from interfere.monitoring.audit.advice import Separation
from interfere.monitoring.audit.slowdowns import SlowdownEstimate
from interfere.reports.document import Section, Sentence, Verbatim, with_code

WORKLOAD_KEY = "interfere.dev/workload"  # the label and annotation that names a pod's workload to interfere
CAP_KEY = "interfere.dev/max-slowdown"
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")  # of Kubernetes' label values, and of Slurm's features
MAX_NAME = 63  # characters of a label's value
CAP_STEP = 0.01
RULE = f"""spec:
  affinity:
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchExpressions:
          - key: {WORKLOAD_KEY}
            operator: In
            values:"""

KUBERNETES_NOTE = (
    "Kubernetes by itself: anti-affinity, which keeps pods off each other's nodes, not only off each other's GPUs."
)
KUBERNETES_CAP_NOTE = "Kubernetes with interfere's controller (docs/kubernetes.md): a cap, GPU by GPU, in its place."
SLURM_NOTE = "Slurm by itself: sets of nodes. The first command replaces the features that its nodes have."
SLURM_CAP_NOTE = "Slurm with `interfere slurm advise`, which leaves jobs with a constraint alone: a cap in its place."


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What to type, or to write into files, for each scheduler; a text for interfere is empty where no cap tells the
    neighbours apart."""

    kubernetes: str  # YAML: pod templates
    kubernetes_with_interfere: str
    slurm: str  # shell commands
    slurm_with_interfere: str


def orders(separations: Sequence[Separation], estimates: Sequence[SlowdownEstimate]) -> Orders | None:
    """Return what keeps the workloads of the separations apart that are certain; None where none is."""
    neighbours: dict[str, list[str]] = {}
    for each in separations:
        if each.is_certain and each.neighbour not in neighbours.setdefault(each.victim, []):
            neighbours[each.victim].append(each.neighbour)
    neighbours = {victim: found for victim, found in neighbours.items() if found}
    caps = {victim: cap for victim in neighbours if (cap := slowdown_cap(victim, neighbours[victim], estimates))}
    if not neighbours:
        return None
    return Orders(
        kubernetes=_anti_affinity(neighbours),
        kubernetes_with_interfere=_annotations(caps),
        slurm=_features(neighbours),
        slurm_with_interfere=_comments(caps),
    )


def orders_section(typed: Orders) -> Section:
    """Return the orders as a section of a document, each below a sentence on what it does."""
    texts = (
        (KUBERNETES_NOTE, typed.kubernetes),
        (KUBERNETES_CAP_NOTE, typed.kubernetes_with_interfere),
        (SLURM_NOTE, typed.slurm),
        (SLURM_CAP_NOTE, typed.slurm_with_interfere),
    )
    shown = [(with_code(note), text) for note, text in texts if text]
    parts = (part for note, text in shown for part in (Sentence(note), Verbatim(text=text)))
    return Section("How to keep them apart", tuple(parts))


def slowdown_cap(victim: str, neighbours: Sequence[str], estimates: Sequence[SlowdownEstimate]) -> float:
    """Return a slowdown that lies between the intervals of a victim beside some neighbours and beside all others; 0
    where none does."""
    pairs = [each for each in estimates if each.victim == victim and len(each.company) == 1]
    low = max((each.upper for each in pairs if each.company[0] not in neighbours), default=1.0)
    high = min((each.lower for each in pairs if each.company[0] in neighbours), default=0.0)
    cap = round(math.sqrt(max(low, 1.0) * high), 2) if high > 0 else 0.0
    return cap if low + CAP_STEP <= cap <= high - CAP_STEP else 0.0


def scheduler_name(workload: str) -> str:
    """Return the name of a workload as a value of a label or the name of a feature.

    >>> scheduler_name("ml/bert large")
    'ml-bert-large'
    """
    return NOT_IN_NAMES.sub("-", workload)[:MAX_NAME].strip("-_.") or "workload"


def _anti_affinity(neighbours: Mapping[str, Sequence[str]]) -> str:
    """Return the pod templates: a rule holds both ways round, so few workloads need one, and the others a label."""
    pairs = {frozenset((victim, name)) for victim, names in neighbours.items() for name in names}
    rules: dict[str, list[str]] = {}
    while pairs:
        counts = Counter(name for pair in sorted(map(sorted, pairs)) for name in pair)
        name = counts.most_common(1)[0][0]
        ruled = [pair for pair in pairs if name in pair]
        rules[name] = sorted(next(iter(pair - {name}), name) for pair in ruled)
        pairs -= set(ruled)
    labelled = dict.fromkeys((*rules, *(name for apart in rules.values() for name in apart)))
    return "\n---\n".join(_template(name, rules.get(name, ())) for name in labelled)


def _template(workload: str, apart: Sequence[str]) -> str:
    label = f"# the pod template of {_comment(workload)}\nmetadata:\n  labels:\n    {WORKLOAD_KEY}: {_quoted(workload)}"
    return "\n".join((label, RULE, *(f"            - {_quoted(name)}" for name in apart))) if apart else label


def _comment(workload: str) -> str:
    """Return the name of a workload as a comment: whatever it holds, the line does not end in it."""
    return "".join(letter if letter.isprintable() else " " for letter in workload[:MAX_NAME])


def _quoted(workload: str) -> str:
    return json.dumps(scheduler_name(workload))


def _annotations(caps: Mapping[str, float]) -> str:
    return "\n---\n".join(
        f"# the pod template of {_comment(victim)}\nmetadata:\n  annotations:\n"
        f'    {WORKLOAD_KEY}: {json.dumps(victim, ensure_ascii=False)}\n    {CAP_KEY}: "{cap:.2f}"'
        for victim, cap in caps.items()
    )


def _comments(caps: Mapping[str, float]) -> str:
    comments = (f"interfere:workload={scheduler_name(victim)};max_slowdown={cap:.2f}" for victim, cap in caps.items())
    return "\n".join(f"sbatch --comment={shlex.quote(comment)} JOB.sh" for comment in comments)


def _features(neighbours: Mapping[str, Sequence[str]]) -> str:
    """Return commands that give each set of nodes a feature, and each workload the feature of a set in which none is
    that it is kept apart from."""
    # 1. A set of nodes for each workload: the first in which no workload is that it must not meet.
    apart = {frozenset((victim, name)) for victim, names in neighbours.items() for name in names}
    sets: dict[str, int] = {}
    for name in dict.fromkeys(name for victim, names in neighbours.items() for name in (victim, *names)):
        taken = {sets[other] for other in sets if frozenset((name, other)) in apart}
        sets[name] = min(k for k in range(len(sets) + 1) if k not in taken)
    # 2. The commands.
    lines = []
    for k in range(max(sets.values()) + 1) if len(set(sets.values())) > 1 else ():
        feature = f"apart{k + 1}"
        lines += [
            f"scontrol update NodeName=NODES{k + 1} AvailableFeatures={feature} ActiveFeatures={feature}",
            *(f"sbatch --constraint={feature} JOB.sh   # {_comment(name)}" for name, own in sets.items() if own == k),
        ]
    alone = [name for name in sets if frozenset((name,)) in apart]
    return "\n".join(
        (*lines, *(f"sbatch --gres=gpu:1 JOB.sh   # {_comment(name)}: apart from itself" for name in alone))
    )
