"""Runs exported graphs in ONNX Runtime, as the server does: pair graphs on rows, matrix graphs on two sets of jobs."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.predict.graphs.model_graphs import select_feeds
from interfere.training.dataset import PairRows


def open_session(graph: bytes) -> Any:
    """Return a single-threaded ONNX Runtime session of a serialised graph."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def run_pair_graph(session: Any, rows: PairRows) -> NDArray[np.float64]:
    """Return the log slowdowns of a pair graph, float64[p]."""
    feeds = {"pairs": rows.pairs, "victim": rows.victim, "neighbour": rows.neighbour, "domain": rows.domain}
    return np.asarray(session.run(["log_slowdown"], select_feeds(session, feeds))[0], dtype=np.float64)


def run_matrix_graph(
    session: Any,
    victims: NDArray[np.float32],
    victim_id: NDArray[np.int64],
    neighbours: NDArray[np.float32],
    neighbour_id: NDArray[np.int64],
    domain: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return log slowdowns of victims beside neighbours and of neighbours beside victims, float64[v, n] each."""
    feeds = {
        "victims": victims,
        "victim_id": victim_id,
        "neighbours": neighbours,
        "neighbour_id": neighbour_id,
        "domain": np.array([domain], dtype=np.int64),
    }
    log_victim, log_neighbour = session.run(["log_victim", "log_neighbour"], select_feeds(session, feeds))
    return np.asarray(log_victim, dtype=np.float64), np.asarray(log_neighbour, dtype=np.float64)
