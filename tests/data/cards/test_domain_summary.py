"""The figures of a page, for tables made by hand and for the published ones."""

import math
from dataclasses import replace

import pytest

from interfere import devices
from interfere.data.cards.domain_summary import domain_summaries, memory_summary
from interfere.data.importers.gavel import import_gavel
from interfere.data.importers.lucid import import_lucid
from interfere.data.tables import Table
from interfere.devices import DeviceType
from interfere.records import NAN, JobProfile, PairMeasurement, PairStatus
from tests.data.cards.page_tables import EMPTY, GIB, NONE_OK, SMALL, joined, parsed, table_of, table_page
from tests.data.importers.public_files import public
from tests.data.sample_table import JOBS, PAIR, TABLE


def test_the_map_is_ordered_so_that_structure_shows() -> None:
    # log slowdown of victim i beside neighbour j = i·.1 + j·.2: the last names suffer and hurt most.
    names = ["a", "b", "c"]
    pairs = tuple(
        replace(PAIR, victim=v, neighbour=n, slowdown=math.exp(i * 0.1 + j * 0.2), lower=NAN, upper=NAN, passes=())
        for i, v in enumerate(names)
        for j, n in enumerate(names)
        if (v, n) != ("c", "c")
    )
    jobs = tuple(replace(JOBS[0], workload=n) for n in names)
    (domain,) = domain_summaries(Table(name="t", jobs=jobs, pairs=pairs))
    assert domain.victims == ("c", "b", "a")
    assert domain.neighbours == ("c", "b", "a")
    assert domain.missing == 1


def test_verdicts() -> None:
    def says(table: Table) -> str:
        return parsed(table).all("p", "verdict")[0].words

    noise = [
        replace(PAIR, victim=v, neighbour=n, passes=p) for v, n, p in (("a", "b", (1.0, 3.0)), ("b", "a", (3.0, 1.0)))
    ]
    assert "Worth learning from" in says(TABLE)
    assert "Mostly noise" in says(Table(name="noise", jobs=JOBS, pairs=tuple(noise)))
    assert "Agreement unknown" in says(SMALL)
    assert "Nothing measured" in says(NONE_OK)
    assert "No pairs" in says(EMPTY)


def test_intervals_are_drawn_or_their_absence_is_said() -> None:
    with_ = parsed(TABLE)
    assert len(with_.all("line", "whisker")) == 3
    assert "Every row has one." in with_.words
    bare = replace(TABLE, pairs=tuple(replace(p, lower=NAN, upper=NAN) for p in TABLE.pairs))
    assert not parsed(bare).all("line", "whisker")
    assert "None of the 3 rows has an interval" in parsed(bare).words
    half = replace(TABLE, pairs=(bare.pairs[0], *TABLE.pairs[1:]))
    assert "33.3\u00a0% of 3 rows have none" in parsed(half).words


def test_outliers_are_counted_in_noise_units() -> None:
    # Additive but for one row of sixteen, 30 % too slow; two values a row, 1 % apart.
    names = "abcd"
    pairs = []
    for i, v in enumerate(names):
        for j, n in enumerate(names):
            s = math.exp(0.1 * i + 0.2 * j) * (1.3 if (v, n) == ("b", "c") else 1.0)
            pairs.append(
                replace(PAIR, victim=v, neighbour=n, slowdown=s, passes=(s / 1.01, s * 1.01), lower=NAN, upper=NAN)
            )
    jobs = tuple(replace(JOBS[0], workload=n) for n in names)
    (domain,) = domain_summaries(Table(name="t", jobs=jobs, pairs=tuple(pairs)))
    worst = domain.outliers[0]
    assert (worst.pair.victim, worst.pair.neighbour) == ("b", "c")
    assert domain.noise_from_replicates
    assert domain.noise_sd == pytest.approx(math.log(1.01) * math.sqrt(2))
    # Its residual is 9/16 of the 30 %: a fit with an effect per row and column of a 4 × 4 table takes 7/16.
    assert worst.units == pytest.approx(math.log(1.3) * 9 / 16 / (domain.noise_sd / math.sqrt(2)))
    assert worst.expected == pytest.approx(worst.pair.slowdown / 1.3 ** (9 / 16))


def test_without_repeats_the_residuals_of_the_fit_are_the_noise() -> None:
    (domain,) = domain_summaries(SMALL)
    assert not domain.noise_from_replicates
    assert domain.noise_sd > 0
    assert "no row was repeated" in parsed(SMALL).words


def test_memory_sums_are_compared_with_the_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(devices.KNOWN_DEVICE_TYPES, "gpu", DeviceType(name="gpu", memory_bytes=16 * GIB, source="test"))
    peaks = {"small": 2.0, "half": 9.0, "big": 15.0}
    jobs = tuple(
        JobProfile(workload=n, device_type="gpu", step_time_s=1.0, memory_peak_bytes=p * GIB) for n, p in peaks.items()
    )
    jobs = (*jobs[:2], replace(jobs[2], memory_peak_bytes=NAN, static_memory_peak_bytes=15 * GIB))
    ok = PairMeasurement(victim="small", neighbour="half", device_type="gpu", mode="mps", slowdown=1.2)
    no = replace(ok, status=PairStatus.INFEASIBLE, slowdown=NAN, reason="out of memory")
    pairs = (
        ok,
        replace(ok, victim="half", neighbour="small"),
        replace(no, victim="half", neighbour="half"),
        replace(ok, victim="small", neighbour="big"),  # 17 GiB, yet it ran
        replace(no, victim="small", neighbour="small"),  # 4 GiB, yet it did not
    )
    table = Table(name="t", jobs=jobs, pairs=pairs)
    known = memory_summary(domain_summaries(table)[0])
    assert [s.bytes / GIB for s in known.sums] == [18, 17, 11, 4]
    counts = {(f, r): known.count(fits=f, feasible=r) for f in (True, False) for r in (True, False)}
    assert counts == {(True, True): 1, (True, False): 1, (False, True): 1, (False, False): 1}
    words = parsed(table).words
    assert "A static trace gave 1 peak:" in words
    assert "against 16.0\u00a0GiB" in words
    assert "17.0\u00a0GiB" in words
    odd = [t for t in parsed(table).all("table", "plain") if "memory and measurement differ" in t.words]
    assert len(odd[0].all("tr")) == 3


def test_reasons_are_counted_without_their_numbers() -> None:
    pairs = [replace(PAIR, victim=v, neighbour=n) for v in "ab" for n in "ab"]
    pairs[0] = replace(pairs[0], status=PairStatus.UNSTABLE, slowdown=NAN, lower=NAN, upper=NAN, reason="drift 3 %")
    pairs[1] = replace(pairs[1], status=PairStatus.UNSTABLE, slowdown=NAN, lower=NAN, upper=NAN, reason="drift 7 %")
    pairs[2] = replace(pairs[2], reason="right-censored at 1")
    root = parsed(Table(name="t", jobs=JOBS, pairs=tuple(pairs)))
    (grid,) = [t for t in root.all("table", "plain") if "Rows by status" in t.words]
    rows = [[cell.text for cell in row.inside] for row in grid.all("tr")[1:]]
    assert rows == [["ok", "1", "–"], ["ok", "1", "right-censored at 1"], ["unstable", "2", "drift 3 %"]]
    assert "1 row: the true slowdown lies beyond the one given" in root.words


def test_facts_that_no_job_has_take_no_column() -> None:
    def heads(table: Table) -> list[str]:
        (grid,) = [t for t in parsed(table).all("table", "plain") if "Profiles of jobs alone" in t.words]
        return [h.text for h in grid.all("th") if h.attributes["scope"] == "col"]

    assert "power, W" not in heads(TABLE)
    watts = replace(TABLE, jobs=(replace(JOBS[0], power_w=250.0, family="net"), JOBS[1]))
    assert {"power, W", "family"} <= set(heads(watts))


def test_groups_never_measured_together_stand_together_and_are_named() -> None:
    apart = joined(table_of(["a", "b", "c"], holes=False), table_of(["x", "y"], holes=False))
    (domain,) = domain_summaries(apart)
    assert set(domain.victims[:3]) == set(domain.neighbours[:3]) == {"a", "b", "c"}
    assert "fall into 2 groups never measured together" in parsed(apart).words
    assert "never measured together" not in parsed(TABLE).words


def test_gavel_as_published() -> None:
    got = import_gavel(public("gavel/oracle_throughputs.json"))
    root = parsed(Table(name="gavel", jobs=got.jobs, pairs=got.pairs))
    maps = root.all("table", "heat")
    assert [len(grid.all("td", "cell")) for grid in maps] == [26 * 26] * 3
    assert sum(len(grid.all("td", "infeasible")) for grid in maps) == 170
    assert "125 rows: the true slowdown lies beyond the one given" in root.words


def test_lucid_as_published() -> None:
    got = import_lucid(public("lucid"))
    table = Table(name="lucid", jobs=got.jobs, pairs=got.pairs)
    (domain,) = domain_summaries(table)
    assert domain.fit.group_count == 2  # its NeuMF jobs were run beside one another alone
    assert all(name.startswith("NeuMF") for name in domain.victims[-4:])
    (grid,) = parsed(table).all("table", "heat")
    assert len(grid.all("td", "cell")) == 35 * 41


def test_a_pair_infeasible_in_one_order_is_infeasible() -> None:
    ok = PairMeasurement(victim="b", neighbour="a", device_type="gpu", mode="mps", slowdown=1.2)
    no = replace(ok, victim="a", neighbour="b", status=PairStatus.INFEASIBLE, slowdown=NAN, reason="out of memory")
    for pairs in ((ok, no), (replace(ok, victim="a", neighbour="b"), replace(no, victim="b", neighbour="a"))):
        (domain,) = domain_summaries(Table(name="t", jobs=table_of(["a", "b"]).jobs, pairs=pairs))
        assert [s.status for s in memory_summary(domain).sums] == [PairStatus.INFEASIBLE]


def test_of_many_pairs_whose_memory_disagrees_most_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(devices.KNOWN_DEVICE_TYPES, "gpu", DeviceType(name="gpu", memory_bytes=GIB, source="test"))
    root = parsed(table_of("abcdef", holes=False))  # 21 unordered pairs, each over 1 GiB, and each ran
    assert [s.text for s in root.all("summary")] == ["9 more rows"]
    rows = [len(t.all("tr")) - 1 for t in root.all("table", "plain") if "by memory" in t.words]
    assert rows == [12, 9]
    assert "0 fit and could share" in root.words
    assert "21 do not fit yet could" in root.words


def test_one_very_long_interval_does_not_flatten_the_others() -> None:
    wild = replace(TABLE, pairs=(replace(TABLE.pairs[0], lower=0.01, upper=90.0), *TABLE.pairs[1:]))
    assert "1 interval longer than the drawing" in parsed(wild).words
    assert "[0.01, 90.0]" in table_page(wild)
    heights = [float(line.attributes["y2"] or "") for line in parsed(wild).all("line", "whisker")]
    assert all(0 <= y <= 260 for y in heights)
    assert "longer than the drawing" not in parsed(TABLE).words
