"""The recommendation in words, from its kind and parameters."""

import math

from interfere.records.mode_advice import ModeReasonKind, ModeRecommendation


def render_recommendation(recommendation: ModeRecommendation) -> str:
    """One sentence that a person reads."""
    mode, other = recommendation.mode, recommendation.other_mode
    throughput, than = f"{recommendation.throughput:.2f}", f"{recommendation.other_throughput:.2f}"
    misses = recommendation.miss_probability
    risk = "" if math.isnan(misses) else f"; the largest probability of a missed latency target is {misses:.2f}"
    match recommendation.kind:
        case ModeReasonKind.HIGHEST_THROUGHPUT:
            beside = f", {than} under {other}" if other else ""
            return f"{mode}: relative throughput {throughput}{beside}, 1 one after the other{risk}"
        case ModeReasonKind.ONLY_KNOWN_MODE:
            return f"{mode}, the only mode of which anything is known: relative throughput {throughput}{risk}"
        case ModeReasonKind.SHARING_LOSES:
            return f"run the jobs one after the other: {than} under {other}, the best known mode, is no gain"
        case ModeReasonKind.TARGETS_EXCLUDE_MODES:
            return (
                f"run the jobs one after the other: {other} would break a latency target with probability {misses:.2f}"
            )
        case ModeReasonKind.DOES_NOT_FIT:
            return "run the jobs one after the other: together the jobs do not fit the memory of the device"
        case ModeReasonKind.NOTHING_KNOWN:
            return "nothing is known of any mode: measure one of those listed"
