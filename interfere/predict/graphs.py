"""Runs the exported graphs of one model: `pair.onnx` on lists of pairs, `matrix.onnx` on sets of jobs.

`matrix.onnx` exists only for a model that factorises over jobs, and computes the same function. Without `matrix.onnx`,
`pair.onnx` predicts every distinct ordered pair of a matrix once. Law: a pair gets the same number, within the parity
budget of the export, by itself, in a list and in a matrix of any size.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.errors import ModelError
from interfere.predict.manifest import REMEDY
from interfere.protocols import PairEncoder

PAIRS_PER_CALL = 4096  # of pair.onnx: 164 columns each are 2.7 MB, and 20,000 at once take three times as long a pair
VICTIMS_PER_CALL = 256  # of matrix.onnx: bounds memory; with 64, encoding all neighbours again takes most of the time

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rows = NDArray[np.float32]


class ModelGraphs:
    """The graphs of a published folder. Thread-safe."""

    def __init__(self, folder: Path, encoder: PairEncoder, *, factorises: bool) -> None:
        """Load the graphs of `folder`; `factorises` states that the folder also holds a `matrix.onnx`.

        Raises ModelError for a graph that cannot be loaded, or was exported under another encoder.
        """
        self._encoder = encoder
        self._pair_graph = _load_graph(folder / "pair.onnx", encoder.fingerprint)
        self._pair_inputs = input_names(self._pair_graph)
        self._matrix_graph = _load_graph(folder / "matrix.onnx", encoder.fingerprint) if factorises else None
        self._matrix_inputs = input_names(self._matrix_graph) if factorises else ()

    def run_pairs(self, jobs: Rows, identities: Ints, domain: int, victim: Ints, neighbour: Ints) -> Floats:
        """Return log slowdowns float64[p] of pairs; `victim` and `neighbour` index the encoded jobs float32[n, F]."""
        answer = np.empty(len(victim))
        for start in range(0, len(victim), PAIRS_PER_CALL):
            block = slice(start, start + PAIRS_PER_CALL)
            i, j = victim[block], neighbour[block]
            feeds = {
                "pairs": self._encoder.encode_pairs(jobs[i], jobs[j]),
                "victim": identities[i],
                "neighbour": identities[j],
                "domain": np.full(len(i), domain, dtype=np.int64),
            }
            answer[block] = self._pair_graph.run(["log_slowdown"], _selected(feeds, self._pair_inputs))[0].reshape(-1)
        return answer

    def run_matrix(
        self, jobs: Rows, identities: Ints, domain: int, victims: Ints, neighbours: Ints
    ) -> tuple[Floats, Floats]:
        """Return the log slowdowns (of victims beside neighbours, of neighbours beside victims), float64[v, n] each.

        `victims` and `neighbours` index into the encoded jobs float32[n, F]; equal indices are the same job.
        """
        if self._matrix_graph is None:
            return self._run_distinct_pairs(jobs, identities, domain, victims, neighbours)
        log_victim = np.empty((len(victims), len(neighbours)))
        log_neighbour = np.empty_like(log_victim)
        columns = {
            "neighbours": jobs[neighbours],
            "neighbour_id": identities[neighbours],
            "domain": np.array([domain], dtype=np.int64),
        }
        for start in range(0, len(victims), VICTIMS_PER_CALL):
            block = slice(start, start + VICTIMS_PER_CALL)
            feeds = {"victims": jobs[victims[block]], "victim_id": identities[victims[block]], **columns}
            log_victim[block], log_neighbour[block] = self._matrix_graph.run(
                ["log_victim", "log_neighbour"], _selected(feeds, self._matrix_inputs)
            )
        return log_victim, log_neighbour

    def _run_distinct_pairs(
        self, jobs: Rows, identities: Ints, domain: int, victims: Ints, neighbours: Ints
    ) -> tuple[Floats, Floats]:
        rows, row_of = np.unique(victims, return_inverse=True)
        columns, column_of = np.unique(neighbours, return_inverse=True)
        i, j = np.repeat(rows, len(columns)), np.tile(columns, len(rows))
        both_ways = np.concatenate([i * len(jobs) + j, j * len(jobs) + i])
        distinct, position = np.unique(both_ways, return_inverse=True)
        answer = self.run_pairs(jobs, identities, domain, distinct // len(jobs), distinct % len(jobs))
        log_victim, log_neighbour = answer[position].reshape(2, len(rows), len(columns))
        cells = np.ix_(row_of, column_of)
        return log_victim[cells], log_neighbour[cells]


def input_names(session: Any) -> tuple[str, ...]:
    """Return the names of a graph's inputs; the domain is missing in graphs that read it from the features."""
    return tuple(graph_input.name for graph_input in session.get_inputs())


def select_feeds(session: Any, feeds: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return the subset of the feeds for which the graph has an input."""
    return _selected(feeds, input_names(session))


def _selected(feeds: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    return {name: feeds[name] for name in names}


def open_session(graph: str | bytes) -> Any:
    """Return a single-threaded ONNX Runtime session of a graph, given as a file or serialised."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _load_graph(path: Path, fingerprint: str) -> Any:
    try:
        session = open_session(str(path))
    except Exception as error:  # onnxruntime's own exception types are not public
        raise ModelError(
            f"ONNX Runtime cannot load the graph ({type(error).__name__})", value=path, remedy=REMEDY
        ) from None
    exported_under = session.get_modelmeta().custom_metadata_map.get("fingerprint")
    if exported_under != fingerprint:
        raise ModelError(
            "the graph was exported under another feature encoder",
            value=f"{path}: {exported_under}, this program encodes {fingerprint}",
            remedy="retrain with this version: interfere train",
        )
    return session
