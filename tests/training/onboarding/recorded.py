"""An onboarding replayed: the commands' complete table answers for the core that they were measured on."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from interfere.data.tables import Table, read_table
from interfere.profiling.measurer import MeasuredTable, Report
from interfere.profiling.programs.profiler import CommandConfig
from interfere.profiling.programs.spec import read_commands
from interfere.training.onboarding import OnboardingConfig

EXAMPLE = Path(__file__).parents[3] / "examples" / "onboard" / "jobs.toml"
TABLE = Path(__file__).parent / "eight_programs"  # all 36 pairs of the example's programs: see its card.md
SHIPPED_MODEL = Path(__file__).parents[3] / "interfere" / "predict" / "default"


def recorded_table() -> Table:
    """All pairs of the example's eight programs on one core."""
    return read_table(TABLE)


def replay_of(table: Table) -> Callable[[CommandConfig, Report], MeasuredTable]:
    """A campaign whose commands and pairs are those of the table."""

    def measure(config: CommandConfig, report: Report) -> MeasuredTable:
        asked = {frozenset(pair) for pair in config.pairs or ()}
        pairs = tuple(pair for pair in table.pairs if frozenset((pair.victim, pair.neighbour)) in asked)
        return MeasuredTable(table=replace(table, pairs=pairs), failures=(), blocks=())

    return measure


def replayed_config(out: Path, pairs: int) -> OnboardingConfig:
    """The onboarding of the example with at most so many pairs and no target."""
    campaign = CommandConfig(out=out, commands=read_commands(EXAMPLE), pairs=())
    return OnboardingConfig(campaign=campaign, model=SHIPPED_MODEL, target=0.0, max_pairs=pairs)
