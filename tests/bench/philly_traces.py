"""Six Philly-derived traces: the one-GPU jobs of the two that Gavel published, and two resampled from each of them."""

from pathlib import Path

import numpy as np

from interfere.data.importers.gavel import import_gavel
from interfere.data.importers.published_traces import import_philly
from interfere.data.tables import Table
from interfere.data.traces import JobTrace, VirtualCluster
from interfere.sim.trace_worlds import scale_to_load, worlds_of
from interfere.sim.truth import TruthTable, truth_of
from interfere.sim.world import World
from tests.data.importers.public_files import public
from tests.sim.resampled_traces import resample_with_poisson_arrivals

GIVEN = ("philly_103959", "philly_7f04ca")
RESAMPLED = 2  # of each
DEVICES = 16
CHECKPOINT_S = 62.0  # the mean that Tiresias measured (Gu et al., NSDI 2019)


def gavel_v100() -> TruthTable:
    """Gavel's measured pairs on the V100."""
    read = import_gavel(public("gavel/oracle_throughputs.json"))
    return truth_of(Table(name="gavel", jobs=read.jobs, pairs=read.pairs), device_type="v100")


def six_philly_traces(load: float, *, devices: int = DEVICES, seed: int = 0) -> list[World]:
    """The six traces with their arrivals stretched to an offered load; the same jobs in the same order at each load."""
    rates = public("gavel/oracle_throughputs.json")
    worlds: list[World] = []
    for name in GIVEN:
        world = one_gpu_world(public(f"gavel/{name}.trace"), rates, name, devices)
        worlds.append(scale_to_load(world, load))
        for k in range(RESAMPLED):
            rng = np.random.default_rng([seed, k])
            worlds.append(resample_with_poisson_arrivals(world, load=load, rng=rng, name=f"{name}-resampled-{k + 1}"))
    return worlds


def one_gpu_world(path: Path, rates: Path, name: str, devices: int) -> World:
    """The jobs of a published trace that ask for one GPU and have a duration, on one pool of V100s."""
    read = import_philly(path, throughputs=rates).trace
    assert read is not None
    one_gpu = JobTrace(name=name, jobs=tuple(job for job in read.jobs if job.gpus == 1))
    pool = VirtualCluster(vc=name, nodes=1, gpus_per_node=devices)
    (world,) = worlds_of(one_gpu, device_type="v100", mode="mps", clusters=(pool,), checkpoint_s=CHECKPOINT_S).worlds
    return world
