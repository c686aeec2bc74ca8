"""Array workloads in NumPy and the standard library: each uses one resource, some wait for requests or input.

FLOPs and bytes are declared, since NumPy's operators cannot be profiled: the textbook count of each operation.
"""

from typing import Any

from interfere.profiling.workloads.workload import Answer, Pause, Step, built_in, built_in_service

GEMM_N, GEMM_CALLS = 384, 4
STREAM_N = 4_000_000  # float64: three arrays of 32 MB, beyond the caches
GATHER_TABLE, GATHER_N = 4_000_000, 200_000
FRAMES, FRAME_N = 512, 1024
SORT_N = 500_000


@built_in(
    "gemm",
    "dense matrix products in NumPy: always busy, compute-bound",
    "numpy",
    flops_per_step=GEMM_CALLS * 2.0 * GEMM_N**3,  # one multiply and one add for each of n³ terms
    bytes_per_step=GEMM_CALLS * 3.0 * GEMM_N**2 * 4,  # two operands and one result, once
    operator="numpy::matmul",
    operator_count=GEMM_CALLS,
)
def build_gemm() -> Step:
    """Build products of dense float32 matrices that stay in cache: compute-bound."""
    import numpy as np

    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((GEMM_N, GEMM_N), dtype=np.float32) for _ in range(2))
    product = np.empty_like(left)

    def step(pause: Pause) -> None:
        for _ in range(GEMM_CALLS):
            np.matmul(left, right, out=product)

    return step


@built_in(
    "stream",
    "STREAM add in NumPy: always busy, bandwidth-bound",
    "numpy",
    flops_per_step=float(STREAM_N),
    bytes_per_step=3.0 * STREAM_N * 8,
    operator="numpy::add",
)
def build_stream() -> Step:
    """Build STREAM's add (McCalpin 1995): bandwidth-bound."""
    import numpy as np

    left, right = np.ones(STREAM_N), np.ones(STREAM_N)
    total = np.empty(STREAM_N)

    def step(pause: Pause) -> None:
        np.add(left, right, out=total)

    return step


@built_in(
    "gather",
    "random look-ups in a 32 MB table, 4 ms between queries",
    "numpy",
    flops_per_step=0.0,
    bytes_per_step=4.0 * GATHER_N * (8 + 8 + 8),  # index, entry, result
    operator="numpy::take",
    operator_count=4,
)
def build_gather() -> Step:
    """Build random look-ups in a table of 32 MB, then 4 ms until the next query."""
    import numpy as np

    rng = np.random.default_rng(0)
    table, queries = rng.random(GATHER_TABLE), rng.integers(GATHER_TABLE, size=(4, GATHER_N))
    entries = np.empty(GATHER_N)

    def step(pause: Pause) -> None:
        for query in queries:
            np.take(table, query, out=entries, mode="clip")
        pause(0.004)

    return step


@built_in(
    "spectrogram",
    "FFTs of audio packets, 2 ms apart",
    "numpy",
    flops_per_step=3 * FRAMES * 2.5 * FRAME_N * 10,  # 2.5 n log2 n for a real transform (FFTW's convention)
    bytes_per_step=3.0 * FRAMES * FRAME_N * 8 * 4,  # input, windowed copy, spectrum, logarithm
    operator="numpy::rfft",
    operator_count=3,
)
def build_spectrogram() -> Step:
    """Build windowed FFTs of three audio packets, 2 ms apart."""
    import numpy as np

    sound = np.random.default_rng(0).standard_normal((FRAMES, FRAME_N))
    window = np.hanning(FRAME_N)

    def step(pause: Pause) -> None:
        for _ in range(3):
            np.log1p(np.abs(np.fft.rfft(sound * window, axis=1)))
            pause(0.002)

    return step


@built_in(
    "request-server",
    "small JSON requests, gaps of 0.5-4 ms: light and latency-bound",
    "python",
    operator="python::request",
    operator_count=4,
)
def build_request_server() -> Step:
    """Build a server of four small requests (parse, hash, answer) a step, with gaps of 0.5-4 ms."""
    import hashlib
    import json

    body = json.dumps({"items": [{"id": i, "name": f"item {i}", "price": i * 0.01} for i in range(400)]})

    def step(pause: Pause) -> None:
        for gap_s in (0.0005, 0.004, 0.001, 0.0025):
            items = json.loads(body)["items"]
            answer = json.dumps(sorted(items, key=lambda item: -item["price"]))
            hashlib.sha256(answer.encode()).hexdigest()
            pause(gap_s)

    return step


@built_in(
    "analytics",
    "sort and aggregate, then an 8 ms pause: long burst, long pause",
    "numpy",
    operator="numpy::argsort",
)
def build_analytics() -> Step:
    """Build a long query that sorts and aggregates, then 8 ms until the next: long burst, long pause."""
    import numpy as np

    rng = np.random.default_rng(0)
    keys, amounts = rng.integers(1000, size=SORT_N), rng.random(SORT_N)

    def step(pause: Pause) -> None:
        order = np.argsort(amounts)
        np.bincount(keys[order], weights=amounts[order])
        pause(0.008)

    return step


@built_in_service(
    "json-api",
    "JSON requests parsed, sorted and answered",
    "python",
    requests_per_s=(700, 1200, 1800),
    operator="python::request",
)
def build_json_api() -> Answer:
    """Build a service that parses a list of 300 items, sorts it and answers with its digest."""
    import hashlib
    import json

    body = json.dumps([{"id": i, "name": f"item {i}", "price": i * 37 % 100} for i in range(300)])

    def answer() -> str:
        items = sorted(json.loads(body), key=lambda item: -item["price"])
        return hashlib.sha256(json.dumps(items).encode()).hexdigest()

    return answer


@built_in_service(
    "compress-api",
    "documents compressed with zlib",
    "python",
    requests_per_s=(450, 800, 1200),
    operator="python::compress",
)
def build_compress_api() -> Answer:
    """Build a service that compresses a document of 16 KB."""
    import zlib

    import numpy as np

    words = np.random.default_rng(0).integers(0, 200, 4000).tolist()
    document = " ".join(f"word{word}" for word in words).encode()[:16384]
    return lambda: zlib.compress(document, 6)


@built_in_service(
    "vector-search",
    "nearest neighbours of an embedding",
    "numpy",
    requests_per_s=(450, 800, 1200),
    operator="numpy::matmul",
)
def build_vector_search() -> Answer:
    """Build a service that finds the ten vectors out of 60,000 (15 MB) with the largest inner product."""
    import numpy as np

    rng = np.random.default_rng(0)
    vectors, query = (rng.standard_normal(shape, dtype=np.float32) for shape in ((60_000, 64), (64,)))

    def answer() -> Any:
        return np.argpartition(vectors @ query, -10)[-10:]

    return answer
