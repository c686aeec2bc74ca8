"""Verdicts of comparisons, and how long a run could tell what this one cannot."""

import pytest

from interfere.commands.quickstart.pairings import (
    Comparison,
    Interval,
    Knowledge,
    MeasuringTime,
    Slowdown,
    Verdict,
    all_pairs,
    choose_random_pairing,
    compare,
    directions,
    greedy_pairing,
)
from tests.commands.quickstart.injected import NAMES, PAIRING, true_slowdowns

EVERY = directions(all_pairs(NAMES))


def comparison(low: float, high: float, *, seconds: float = 240.0, longer: int = 1) -> Comparison:
    return Comparison(
        other="random mean",
        chosen_run_again=True,
        difference=Interval((low + high) / 2, low, high),
        time=MeasuringTime(seconds, longer),
    )


@pytest.mark.parametrize(
    ("low", "high", "verdict", "words"),
    [
        (
            -0.2,
            -0.1,
            Verdict.BETTER,
            "-0.150 mean slowdown, 95 % interval [-0.200, -0.100]: the chosen pairing is better",
        ),
        (0.1, 0.2, Verdict.WORSE, "NOT better, it is worse"),
        (-0.2, 0.1, Verdict.CANNOT_TELL, "cannot tell which is better"),
        (0.0, 0.0, Verdict.SAME, "are the same pairs"),
    ],
)
def test_the_sentence_says_whichever_way_it_went(low: float, high: float, verdict: Verdict, words: str) -> None:
    assert comparison(low, high).verdict is verdict
    assert words in comparison(low, high).text()


def test_where_it_cannot_tell_it_says_how_long_a_run_could() -> None:
    # An interval of ± .125 around -.0625 must shrink to half, which takes four times the time: 16 minutes.
    text = comparison(-0.1875, 0.0625).text()
    assert "about 16 minutes of measuring could" in text
    assert text.endswith("interfere quickstart --longer 4")
    assert comparison(-0.1875, 0.0625, longer=2).text().endswith("--longer 8")
    assert "not even a day" in comparison(-0.2, 0.1999).text()
    assert "measuring them again could" in comparison(-0.2, 0.1, seconds=0.0).text()


def test_the_pairings_that_are_compared_and_their_rows() -> None:
    predicted = {pair: Slowdown(value, 0.05) for pair, value in true_slowdowns(1).items()}
    measured = {pair: Slowdown(value, 0.01) for pair, value in true_slowdowns(2).items()}
    random_pairing = choose_random_pairing(NAMES, 0)
    greedy = greedy_pairing(NAMES, true_slowdowns(1))
    knowledge = Knowledge(predicted=predicted, first=measured, again=measured)
    rows, comparisons = compare(NAMES, PAIRING, greedy, random_pairing, knowledge, MeasuringTime(240.0))
    means = {row.name: row.measured.mean_slowdown.value for row in rows}
    assert list(means)[:3] == ["chosen by matching", "greedy, in order", "random (mean of 105)"]
    assert means["best possible"] <= min(means.values())
    assert means["worst possible"] >= max(means.values())
    differences = {each.other: each.difference.value for each in comparisons}
    assert differences == {
        "random mean": pytest.approx(means["chosen, run again"] - means["random (mean of 105)"]),
        "greedy": pytest.approx(means["chosen, run again"] - means["greedy, run again"]),
        "a random one": pytest.approx(means["chosen, run again"] - means["a random one, run"]),
    }
    assert all(each.chosen_run_again for each in comparisons)
