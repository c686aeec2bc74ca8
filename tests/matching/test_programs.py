"""Linear and integer programs: what HiGHS must not do around them."""

import subprocess
import sys


def test_highs_prints_nothing_neither_when_made_nor_when_it_solves() -> None:
    """Standard output belongs to commands, whose first line may be JSON; HiGHS prints to it past Python."""
    code = "from interfere.matching.programs import new_highs; highs = new_highs(); highs.run(); new_highs().run()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
