"""How evidence, domain and novelty choose a quantile."""

import numpy as np

from interfere.predict.intervals import EVIDENCE_CLASSES, Intervals, evidence_class, spread


def test_evidence_by_number_of_partners() -> None:
    assert [EVIDENCE_CLASSES[k] for k in evidence_class(np.array([0, 1, 3, 4, 1000]))] == [
        "new",
        "few",
        "few",
        "known",
        "known",
    ]


def test_an_unknown_domain_is_answered_by_all_domains_together() -> None:
    grids = np.arange(12.0).reshape(3, 2, 2)
    made = Intervals(calibrated=True, levels=np.array([0.0, 1.0]), grids=grids)
    shape = {"novelty": np.zeros((2, 3)), "partners": np.full((2, 3), 5)}
    assert made.quantile(0.5, domain=0, **shape).tolist() == [[8.5] * 3] * 2
    assert made.quantile(0.5, domain=1, **shape).tolist() == [[10.5] * 3] * 2


def test_more_novelty_is_never_a_narrower_interval() -> None:
    wide = spread(np.linspace(0, 1, 50))
    assert wide[0] == 1
    assert (np.diff(wide) > 0).all()
