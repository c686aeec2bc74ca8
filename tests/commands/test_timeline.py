"""`interfere timeline` as a user meets it: tables, files of profiles, pictures, errors."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from interfere.commands.timeline import app
from interfere.errors import InterfereError, InvalidInputError, NotFoundError, UnfitError
from interfere.records import JobProfile, KernelStat
from interfere.records.documents import to_document

RUN = CliRunner()


def profiles(path: Path, *, device: str = "v100") -> Path:
    jobs = [
        JobProfile(
            workload=name,
            device_type=device,
            step_time_s=1e-3,
            kernels=(KernelStat(name="gemm", mean_s=30e-6, count=10), KernelStat(name="relu", mean_s=3e-6, count=20)),
        )
        for name in ("serve", "train")
    ]
    bare = JobProfile(workload="bare", device_type=device, step_time_s=1.0)
    path.write_text(json.dumps([to_document(job) for job in (*jobs, bare)]))
    return path


def document(*arguments: str) -> dict[str, object]:
    done = RUN.invoke(app, [*arguments, "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_two_jobs_of_the_shipped_table() -> None:
    found = document("gather", "gemm", "--mode", "fair", "--mode", "priority")
    assert [one["mode"] for one in found["modes"]] == ["fair", "priority"]  # type: ignore[attr-defined]
    assert found["high"]["gaps"] == "as measured"  # type: ignore[index]
    assert found["picture"] is None


def test_a_file_of_profiles_and_a_picture(tmp_path: Path) -> None:
    path, out = profiles(tmp_path / "jobs.json"), tmp_path / "new" / "folder"
    arguments = ("serve", "train", "--profiles", str(path), "--out", str(out))
    found = document(*arguments)
    assert Path(str(found["picture"])).read_text().startswith("<!doctype html>")
    assert [one["mode"] for one in found["modes"]] == [
        "exclusive",
        "timeslice",
        "queued",
        "unpredicted",
        "priority",
        "filling",
    ]  # type: ignore[attr-defined]
    assert found["low_kernels_too_long"] == 10  # gemm takes 30 µs, what is left of the step makes gaps of 21 µs
    text = RUN.invoke(app, list(arguments), catch_exceptions=False)
    assert "10 of 30 low kernels" in " ".join(text.stderr.split())
    assert "priority" in text.stdout
    assert "spread evenly by count" in text.stderr


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (("nope", "serve"), NotFoundError, "no profile of such a workload: nope\n.*bare, serve, train"),
        (("serve", "train", "--device-type", "k80"), NotFoundError, "on k80: serve"),
        (("bare", "serve"), UnfitError, "neither kernels nor busy stretches"),
        (("serve", "train", "--mode", "magic"), InvalidInputError, "magic"),
    ],
)
def test_bad_input_is_one_error_with_a_remedy(
    tmp_path: Path, arguments: tuple[str, ...], error: type[InterfereError], match: str
) -> None:
    path = profiles(tmp_path / "jobs.json")
    with pytest.raises(error, match=match) as caught:
        RUN.invoke(app, [*arguments, "--profiles", str(path), "--out", str(tmp_path / "out")], catch_exceptions=False)
    assert caught.value.remedy
    assert not (tmp_path / "out").exists()


def test_files_that_are_no_profiles_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.json"
    for text, match in (
        ('{"a": 1}', "a: unknown field"),
        ("[1]", "no list of profiles"),
        ('[{"workload": "x"}]', "device_type: is needed"),
        ("[", "JSON"),
    ):
        path.write_text(text)
        with pytest.raises(InvalidInputError, match=match):
            RUN.invoke(app, ["a", "b", "--profiles", str(path)], catch_exceptions=False)
    both = RUN.invoke(app, ["a", "b", "--profiles", str(path), "--data", str(tmp_path)])
    assert both.exit_code == 2


def test_jobs_of_several_devices_need_a_choice(tmp_path: Path) -> None:
    one, two = (json.loads(profiles(tmp_path / "a.json", device=name).read_text()) for name in ("v100", "a100"))
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps([*one, *two]))
    with pytest.raises(InvalidInputError, match="a100, v100"):
        RUN.invoke(app, ["serve", "train", "--profiles", str(path)], catch_exceptions=False)
    assert document("serve", "train", "--profiles", str(path), "--device-type", "a100", "--mode", "queued")
    path.write_text(json.dumps([one[0], two[1]]))
    with pytest.raises(InvalidInputError, match="none in common"):
        RUN.invoke(app, ["serve", "train", "--profiles", str(path)], catch_exceptions=False)
