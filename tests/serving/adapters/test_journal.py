"""The report of a journal: how often advice was followed, and how well slowdowns were predicted."""

from interfere.serving.adapters.journal import report_document, summarise


def test_the_report_compares_predicted_with_measured() -> None:
    entries = [
        {"kind": "decision", "at_s": 0.0, "uid": "a", "device": "d0", "predicted_slowdown": 1.5},
        {"kind": "decision", "at_s": 0.0, "uid": "b", "device": "d1", "predicted_slowdown": None},
        {"kind": "bound", "at_s": 1.0, "uid": "a", "device": "d0"},
        {"kind": "bound", "at_s": 1.0, "uid": "b", "device": "d0"},
        {
            "kind": "window",
            "at_s": 60.0,
            "uid": "z",
            "workload": "w",
            "device_type": "t",
            "company": [],
            "step_time_s": 0.1,
        },
        {
            "kind": "window",
            "at_s": 86400.0,
            "uid": "a",
            "workload": "w",
            "device_type": "t",
            "company": ["v"],
            "step_time_s": 0.2,
            "predicted_slowdown": 1.5,
        },
    ]
    summary = summarise(entries)
    assert (summary.days, summary.decided, summary.bound, summary.as_decided, summary.compared) == (1.0, 2, 2, 1, 1)
    assert (summary.median_predicted, summary.median_measured, summary.median_error) == (1.5, 2.0, 0.25)
    (row,) = summary.companies
    assert (row.workload, row.company, row.pods, row.predicted, row.measured) == ("w", ("v",), 1, 1.5, 2.0)
    title, *parts = (getattr(part, "text", part) for part in report_document(summary).parts)
    assert title == "2 jobs have a decision that names a device; 2 of them ran, 1 of these on that device."
    assert parts[0].endswith("median slowdown predicted 1.50, measured 2.00, median error 25%.")
    assert parts[1].rows == (("w", "v", "t", 1, 1.5, 2.0),)
