"""serve, predict, match and observe as a user runs them: real processes, real exit codes, no traceback."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interfere.data.tables import read_table
from tests.models import DEVICE_TYPE, WORKLOADS, expected
from tests.waiting import PATIENCE_S, free_port

INTERFERE = (sys.executable, "-m", "interfere")


def interfere(*arguments: str, stdin: str = "", cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    ran = subprocess.run(
        [*INTERFERE, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=240,
        cwd=cwd,
        env=os.environ | environ,
        check=False,
    )
    assert "Traceback" not in ran.stderr + ran.stdout
    return ran


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def served(model_folder: Path, folder: Path) -> Iterator[dict[str, Any]]:
    """`interfere serve --json` in a process of its own; its one line."""
    process = subprocess.Popen(
        [*INTERFERE, "serve", "--model", str(model_folder), "--port", "0", "--work", "w", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    yield json.loads(line) if line else pytest.fail(process.communicate()[1])
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, "")
    assert "Traceback" not in err


def ask(served: dict[str, Any], folder: Path, *arguments: str, stdin: str = "") -> Any:
    ran = interfere(*arguments, "--target", served["address"], "--json", stdin=stdin, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_serve_says_where_and_what(served: dict[str, Any], model_folder: Path) -> None:
    assert served["address"] == f"127.0.0.1:{served['port']}"
    assert (served["model_version"], served["model"]) == ("0123456789ab", str(model_folder))
    assert served["store"] == "w/store.db"


def test_predict_by_options(served: dict[str, Any], folder: Path) -> None:
    options = ("--victim", "train", "--victim", "infer", "--neighbour", "gemm", "--neighbour", "nobody")
    said = ask(served, folder, "predict", *options)["predictions"]
    assert [(p["victim"], p["neighbour"]) for p in said] == [
        (v, n) for v in ("train", "infer") for n in ("gemm", "nobody")
    ]
    assert said[2]["slowdown"] == pytest.approx(expected("infer", "gemm"), rel=1e-6)
    assert [p["source"] for p in said] == ["measured", "abstained", "model", "abstained"]
    assert said[1]["slowdown"] is None


def test_predict_by_request(served: dict[str, Any], folder: Path) -> None:
    request = json.dumps({"jobs": ["train", "infer"], "pairs": [[1, 0]], "device_type": DEVICE_TYPE})
    (said,) = ask(served, folder, "predict", "--request", "-", stdin=request)["predictions"]
    assert said["slowdown"] == pytest.approx(expected("infer", "train"), rel=1e-6)


def test_match_from_a_file(served: dict[str, Any], folder: Path) -> None:
    snapshot = {
        "pending": [{"id": "a", "workload": "train"}, {"id": "b", "workload": "infer"}],
        "devices": [{"id": "d", "type": DEVICE_TYPE}],
    }
    (folder / "snapshot.json").write_text(json.dumps(snapshot))
    plan = ask(served, folder, "match", "snapshot.json")
    assert [(a["kind"], a["partner_id"]) for a in plan["actions"]] == [("start_shared", "b"), ("start_shared", "a")]
    assert plan["status"] == "OPTIMAL"


def test_match_tells_of_residents_where_that_is_allowed(served: dict[str, Any], folder: Path) -> None:
    old = {"since_s": 0, "remaining_s": 1e4, "preemptible": True, "checkpoint_s": 1}
    residents = [{"id": "r", "workload": "train"} | old, {"id": "s", "workload": "gemm"} | old]
    snapshot = {
        "devices": [{"id": "d", "type": DEVICE_TYPE, "residents": residents}, {"id": "e", "type": DEVICE_TYPE}],
        "pending": [],
        "scope": "residents",
        "now_s": 1000,
        "limits": {"allowed": ["wait", "keep", "move"]},
    }
    plan = ask(served, folder, "match", "-", stdin=json.dumps(snapshot))
    assert sorted(a["kind"] for a in plan["actions"]) == ["keep", "move"]
    shown = interfere("match", "-", "--target", served["address"], stdin=json.dumps(snapshot), cwd=folder)
    assert shown.returncode == 0
    assert "move: e" in shown.stdout
    assert "keep: d" in shown.stdout
    assert "nan" not in shown.stdout


@pytest.mark.parametrize(
    ("allowed", "late"), [("decline", "declined: deadline: "), ("demote", "waits, and its deadline counts no more: ")]
)
def test_match_tells_what_becomes_of_deadlines(served: dict[str, Any], folder: Path, allowed: str, late: str) -> None:
    jobs = [{"id": "in-time", "deadline_s": 900}, {"id": "late", "deadline_s": 10, "weight": 0.5}]
    snapshot = {
        "pending": [{"workload": "gemm", "remaining_s": 600} | job for job in jobs],
        "scope": allowed,
        "now_s": 5,
        "devices": [{"id": "d", "type": DEVICE_TYPE}],
        "limits": {"allowed": ["wait", "start_alone", allowed]},
    }
    shown = interfere("match", "-", "--target", served["address"], stdin=json.dumps(snapshot), cwd=folder)
    assert shown.returncode == 0
    decisions = decisions_of(shown.stdout)
    assert late in decisions
    assert "deadline accepted" in decisions


def test_match_tells_which_deadline_the_plan_misses(served: dict[str, Any], folder: Path) -> None:
    """Each of two jobs of 600 s could meet its deadline, and only one of them does."""
    jobs = [{"id": "first", "deadline_s": 800}, {"id": "second", "deadline_s": 700}]
    snapshot = {
        "pending": [{"workload": "gemm", "remaining_s": 600} | job for job in jobs],
        "scope": "late",
        "now_s": 5,
        "devices": [{"id": "d", "type": DEVICE_TYPE}],
        "limits": {"allowed": ["wait", "start_alone"], "promise_deadlines": False},
    }
    shown = interfere("match", "-", "--target", served["address"], stdin=json.dumps(snapshot), cwd=folder)
    assert shown.returncode == 0
    assert decisions_of(shown.stdout).count("past its deadline") == 1


def decisions_of(shown: str) -> str:
    """The column of decisions of the table that `match` shows, in one line."""
    rows = shown.splitlines()
    (heading,) = (row for row in rows if row.startswith("job "))
    begin, end = heading.index("decision"), heading.index("slowdown")
    return " ".join(" ".join(row[begin:end].strip() for row in rows).split())


def test_match_example_is_built_from_the_model_and_can_be_sent_again(served: dict[str, Any], folder: Path) -> None:
    plan = ask(served, folder, "match", "--example")
    request = plan["request"]
    assert [job["workload"] for job in request["pending"]] == list(WORKLOADS)
    assert len(request["devices"]) == 2
    again = ask(served, folder, "match", "-", stdin=json.dumps(request))
    assert again["cost"] == plan["cost"]


def test_observe_moves_the_next_prediction(served: dict[str, Any], folder: Path) -> None:
    window = {
        "observation_id": "o1",
        "job_id": "j",
        "workload": "stream",
        "device_type": DEVICE_TYPE,
        "start_s": 0,
        "end_s": 10,
        "company": ["gemm"],
        "slowdown": 3.2,
    }
    told = ask(served, folder, "observe", "-", stdin=json.dumps([window]))
    (answer,) = told["observations"]
    assert (answer["observation_id"], answer["result"], answer["reason"]) == ("o1", "applied", "")
    assert 0.1 < answer["weight"] < 1.0  # 2.2 × the prediction
    (said,) = ask(served, folder, "predict", "--victim", "stream", "--neighbour", "gemm")["predictions"]
    assert expected("stream", "gemm") < said["slowdown"] < 3.2
    other = json.dumps([window | {"slowdown": 2.0}])  # of the same id
    ran = interfere("observe", "-", "--target", served["address"], stdin=other, cwd=folder)
    assert ran.returncode == 1
    assert "rejected" in ran.stdout


def test_reporters_are_listed_weighed_and_rolled_back(
    served: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = {"workload": "stream", "job_id": "j", "device_type": DEVICE_TYPE, "start_s": 0, "end_s": 10, "slowdown": 1.8}
    windows = [sent | {"observation_id": f"r{k}", "company": ["gemm"], "reporter": "somebody"} for k in range(3)]
    with monkeypatch.context() as as_reporter:
        as_reporter.setenv("INTERFERE_TOKEN_FILE", f"{served['tokens']}/report.token")
        ask(served, folder, "observe", "-", stdin=json.dumps(windows))

    def reporters() -> dict[str, Any]:
        return {one["reporter"]: one for one in ask(served, folder, "observe", "reporters")["reporters"]}

    name = "local/report"  # who sent them, whatever they say
    assert not {"somebody", ""} & reporters().keys()
    assert (reporters()[name]["windows"], reporters()[name]["weight"]) == (3, 1.0)
    ask(served, folder, "observe", "weigh", name, "--weight", "0.5", "--reason", "a noisy clock")
    told = ask(served, folder, "observe", "rollback", "--to", "0", "--reporter", name, "--reason", "forged")
    assert told["observations"][0]["result"] == "applied"
    assert name not in reporters()
    end = ask(served, folder, "observe", "log", "--limit", "1")["entries"][0]["sequence"]
    ask(served, folder, "observe", "rollback", "--undo", str(end), "--reason", "it was true")
    assert (reporters()[name]["windows"], reporters()[name]["weight"]) == (3, 0.5)


def test_the_log_is_looked_at_and_rolled_back(served: dict[str, Any], folder: Path) -> None:
    sent = [
        {
            "what": "memory_usage",
            "observation_id": "log-m",
            "job_id": "j",
            "workload": "train",
            "bytes": 2.0**31,
            "device_type": DEVICE_TYPE,
            "start_s": 0,
            "end_s": 10,
        },
        {
            "what": "outcome",
            "observation_id": "log-o",
            "job_id": "j",
            "kind": "refused",
            "at_s": 5,
            "reason": "drained",
        },
    ]
    ask(served, folder, "observe", "-", stdin=json.dumps(sent))
    log = ask(served, folder, "observe", "log", "--limit", "2")
    assert [(e["what"], e["about"], e["result"]) for e in log["entries"]] == [
        ("outcome", "refused: drained", "applied"),
        ("memory_usage", "train on cpu-core: 2 GiB", "applied"),
    ]
    end = log["entries"][0]["sequence"]
    assert ask(served, folder, "observe", "log", "--at", str(end - 1))["online"]["outcomes"] == 0
    told = ask(served, folder, "observe", "rollback", "--to", str(end), "--reason", "to try it")
    assert [one["result"] for one in told["observations"]] == ["applied"]
    seen = interfere("observe", "log", "--target", served["address"], cwd=folder, COLUMNS="200")
    assert seen.returncode == 0
    assert f"to {end}: to try it" in seen.stdout
    assert "known here" in seen.stdout
    assert "reporters: " in seen.stdout
    assert "{" not in seen.stdout.partition("known here")[2]
    past = interfere("observe", "log", "--at", "999", "--target", served["address"], cwd=folder)
    assert past.returncode == 1
    assert "the log ends at" in past.stderr
    unknown = json.dumps([{"what": "weather"}])
    assert "observations[0].what" in interfere("observe", "-", stdin=unknown, cwd=folder).stderr


def test_what_was_observed_becomes_a_table(served: dict[str, Any], model_folder: Path, folder: Path) -> None:
    sent = [
        {
            "observation_id": f"export-{k}",
            "job_id": "j",
            "workload": "train",
            "device_type": DEVICE_TYPE,
            "company": ["stream"],
            "start_s": 10 * k,
            "end_s": 10 * k + 10,
            "slowdown": 1.2 + 0.01 * k,
        }
        for k in range(3)
    ]
    ask(served, folder, "observe", "-", stdin=json.dumps(sent))
    store = str(folder / served["store"])
    ran = interfere(
        "observe", "export", "--store", store, "--model", str(model_folder), "--out", "seen", "--json", cwd=folder
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["windows"] >= 3
    rows = {(p.victim, p.neighbour): p for p in read_table(folder / "seen").pairs}
    assert rows["train", "stream"].passes == (1.2, 1.21, 1.22)
    nothing = interfere("observe", "export", "--store", "nowhere.db", "--out", "none", cwd=folder)
    assert nothing.returncode == 1
    assert not (folder / "none").exists()


def test_profiles_are_registered_from_a_sheet_all_or_none(served: dict[str, Any], folder: Path) -> None:
    (folder / "jobs.csv").write_text("job,step_time_ms,memory_peak_gib,team\nnew-a,5,2,red\nnew-b,6,,\n")
    done = ask(served, folder, "profiles", "register", "jobs.csv", "--device-type", DEVICE_TYPE)
    assert [(each["workload"], each["device_type"]) for each in done["registered"]] == [
        ("new-a", DEVICE_TYPE),
        ("new-b", DEVICE_TYPE),
    ]
    listed = ask(served, folder, "profiles", "list", "--workload", "new-a")["profiles"]
    assert [(each["step_time_s"], each["source"]) for each in listed] == [(0.005, "user")]
    document = {"profiles": [{"workload": "new-c", "device_type": DEVICE_TYPE, "step_time_s": 0.007}]}
    (folder / "jobs.json").write_text(json.dumps(document))
    (registered,) = ask(served, folder, "profiles", "register", "jobs.json")["registered"]
    (folder / "bad.csv").write_text("job,step_time_ms\nnew-d,5\nnew-e,fast\n")
    options = ("--device-type", DEVICE_TYPE, "--target", served["address"])
    bad = interfere("profiles", "register", "bad.csv", *options, cwd=folder)
    assert bad.returncode == 1
    assert "bad.csv, row 3, column step_time_ms: a number expected" in bad.stderr
    assert ask(served, folder, "profiles", "list", "--workload", "new-d")["profiles"] == []
    ids = [each["profile_id"] for each in (*done["registered"], registered)]
    assert set(ask(served, folder, "profiles", "remove", *ids)["removed"]) == set(ids)


def test_tables_for_people(served: dict[str, Any], folder: Path) -> None:
    environ = {"INTERFERE_TARGET": served["address"], "COLUMNS": "200"}
    said = interfere("predict", "--victim", "infer", "--neighbour", "train", cwd=folder, **environ)
    assert (said.returncode, said.stderr) == (0, "")
    assert f"{expected('infer', 'train'):.2f} ×" in said.stdout
    plan = interfere("match", "--example", cwd=folder, **environ)
    assert plan.returncode == 0
    assert "job-1 train" in plan.stdout
    assert "beside job-2 infer" in plan.stdout
    assert plan.stderr == ""
    strange = interfere("predict", "--victim", "[/x]", "--neighbour", "[red]", cwd=folder, **environ)
    assert strange.returncode == 0
    assert "[/x]" in strange.stdout
    assert "[/x] beside [red]: no profile of workload" in " ".join(strange.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (("predict",), 2, "--victim"),
        (("predict", "--request", "-", "--victim", "a"), 2, "--request"),
        (("predict", "--request", "nowhere.json"), 1, "nowhere.json"),
        (("predict", "--victim", "a", "--neighbour", "b", "--mode", "magic"), 2, "timeslice"),
        (("match",), 2, "--example"),
        (("match", "-"), 1, "not JSON"),
        (("observe",), 2, "FILE"),
        (("observe", "nowhere.json"), 1, "nowhere.json"),
        (("serve", "--port", "x"), 2, "--port"),
        (("serve", "--port", "70000"), 1, "65535"),
        (("serve", "--model", "."), 1, "manifest.json"),
        (("serve", "--config", "nowhere.toml"), 1, "nowhere.toml"),
    ],
)
def test_wrong_usage_and_bad_input_have_one_clear_message(
    folder: Path, arguments: tuple[str, ...], status: int, text: str
) -> None:
    ran = interfere(*arguments, cwd=folder)
    assert ran.returncode == status
    assert text in ran.stderr


def test_nobody_listens(folder: Path) -> None:
    target = f"127.0.0.1:{free_port()}"
    ran = interfere("match", "--example", "--target", target, cwd=folder)
    assert ran.returncode == 1
    assert "interfere serve" in ran.stderr
    said = json.loads(interfere("match", "--example", "--target", target, "--json", cwd=folder).stdout)
    assert said["error"]["code"] == "UNAVAILABLE"


def test_a_port_in_use_and_a_store_in_use(served: dict[str, Any], folder: Path, model_folder: Path) -> None:
    port = str(served["port"])
    ran = interfere("serve", "--model", str(model_folder), "--port", port, "--work", "other", cwd=folder)
    assert ran.returncode == 1
    assert "in use" in ran.stderr
    ran = interfere("serve", "--model", str(model_folder), "--port", "0", "--work", "w", cwd=folder)
    assert ran.returncode == 1
    assert f"process {served['pid']}" in ran.stderr


def test_help_is_fast_because_nothing_heavy_is_imported() -> None:
    probe = (
        "import sys\n"
        "import interfere.commands.predict, interfere.commands.match, interfere.commands.observe\n"
        "import interfere.serving.commands.serve\n"
        "print([m for m in ('grpc', 'numpy', 'onnxruntime', 'google.protobuf') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_explain_says_why_in_words_and_in_json(served: dict[str, Any], folder: Path) -> None:
    jobs = [{"id": "[/a]", "workload": "train"}, {"id": "b", "workload": "infer"}, {"id": "c", "workload": "gemm"}]
    sent = json.dumps({"pending": jobs, "devices": [{"id": "d", "type": DEVICE_TYPE}], "scope": "here"})
    plan = ask(served, folder, "match", "-", stdin=sent)
    (shared, partner) = (a["job_id"] for a in plan["actions"] if a["device_id"])
    said = ask(served, folder, "explain", plan["decision_id"], shared)
    assert said["action"]["partner_id"] == partner
    assert [pair["victim_id"] for pair in said["pairs"]] == [shared, partner]
    assert said["alternatives"][0]["chosen"]
    told = interfere("explain", plan["decision_id"], shared, "--target", served["address"], cwd=folder, COLUMNS="160")
    assert told.returncode == 0
    assert f"{shared} beside {partner}" in told.stdout  # [/a] is a name, no markup
    assert "step time alone" in told.stdout
    assert "chosen" in told.stdout


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("nope", "a"), "answers of Match"),
        (("{decision}", "nope"), "one of its 2 jobs"),
        (("{decision}", "a", "--scope", "other"), "scope 'other'"),
    ],
)
def test_explain_of_what_is_unknown_fails_with_a_remedy(
    served: dict[str, Any], folder: Path, arguments: tuple[str, ...], remedy: str
) -> None:
    jobs = [{"id": name, "workload": "train"} for name in "ab"]
    plan = ask(
        served, folder, "match", "-", stdin=json.dumps({"pending": jobs, "devices": [{"id": "d", "type": DEVICE_TYPE}]})
    )
    filled = (one.format(decision=plan["decision_id"]) for one in arguments)
    ran = interfere("explain", *filled, "--target", served["address"], cwd=folder)
    assert ran.returncode == 1
    assert remedy in ran.stderr
