"""The devices of a trace that does not say which there are, as the user gives them."""

from interfere.data.traces import JobTrace, VirtualCluster
from interfere.errors import InvalidInputError


def given_clusters(trace: JobTrace, gpus: int | None, per_node: int) -> tuple[VirtualCluster, ...]:
    """One virtual cluster of `gpus` devices in nodes of `per_node`; none where no number is given.

    Raises InvalidInputError where the trace has virtual clusters of its own, and where devices do not fill their nodes.
    """
    if gpus is None:
        return ()
    if trace.clusters:
        raise InvalidInputError(
            "the trace says which devices there are", value=f"--gpus {gpus}", remedy="leave --gpus out"
        )
    per_node = min(per_node, gpus)
    if gpus % per_node:
        raise InvalidInputError(
            "devices do not fill their nodes", value=f"--gpus {gpus} --per-node {per_node}", remedy="give a multiple"
        )
    return (VirtualCluster(vc="all", nodes=gpus // per_node, gpus_per_node=per_node),)
