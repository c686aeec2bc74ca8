"""The registered model as MLflow's people use it: by alias, by `mlflow models serve`, by `mlflow.models.evaluate`."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.errors import InvalidInputError
from interfere.records import JobProfile
from interfere.serving.server import start_server
from interfere.training.pipeline import TrainingResult, train
from interfere.training.publishing import model_registry
from interfere.training.publishing.model_registry import MODEL
from interfere.training.publishing.tracking import database_uri, mlflow_connection, tracked_run
from tests.training.cheap_models import CHEAP_MODELS
from tests.training.mlflow_servers import model_server

pytestmark = pytest.mark.journey
NUMBERS = {"slowdown": "median", "low": "lower", "high": "upper"}
FACTS = json.dumps({"step_time_s": 0.02, "busy_frac": 0.9})


@pytest.fixture(scope="module")
def trained(small_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainingResult]:
    work = tmp_path_factory.mktemp("work")
    return work, train([small_folder], work, models=CHEAP_MODELS)


def asked(names: list[str]) -> pd.DataFrame:
    """All ordered pairs by name, two with a job of which only facts are known, one with a job that nobody knows."""
    rows = [(victim, neighbour, None) for victim in names for neighbour in names]
    rows += [("new", names[0], FACTS), ("new", names[1], FACTS), ("unknown", names[0], None)]
    frame = pd.DataFrame(rows, columns=["victim", "neighbour", "victim_profile"])
    return frame.assign(device_type="cpu-core", mode="timeslice")


@pytest.fixture(scope="module")
def names(trained: tuple[Path, TrainingResult]) -> list[str]:
    with mlflow_connection(trained[0]):
        example = mlflow.pyfunc.load_model(f"models:/{MODEL}@champion").input_example
    return sorted({*example.victim, *example.neighbour})


def test_it_is_loaded_by_alias_and_says_what_it_reads_and_answers(trained: tuple[Path, TrainingResult]) -> None:
    with mlflow_connection(trained[0]):
        model = mlflow.pyfunc.load_model(f"models:/{MODEL}@champion")
        requirements = mlflow.pyfunc.get_model_dependencies(f"models:/{MODEL}@champion")
    assert model.metadata.signature.inputs.input_names() == [
        *("victim", "neighbour", "device_type", "mode"),
        *("victim_profile", "neighbour_profile"),
    ]
    assert model.metadata.signature.outputs.input_names() == [*NUMBERS, "source", "reason"]
    answer = model.predict(model.input_example)
    assert set(answer.source) == {"measured"}
    assert ((answer.low <= answer.slowdown) & (answer.slowdown <= answer.high)).all()
    pinned = Path(requirements).read_text().split()
    assert all("==" in line for line in pinned)
    assert any(line.startswith("interfere-gpu[serve]==") for line in pinned)


def test_served_over_http_it_answers_as_the_policy_server_does_over_grpc(
    trained: tuple[Path, TrainingResult], names: list[str], tmp_path: Path
) -> None:
    """A policy server without observations, on the same folder."""
    work, result = trained
    frame = asked(names)
    served = start_server(Settings(model=result.folder, work=tmp_path, port=0, decision_workers=0, insecure=True))
    try:
        with (
            model_server(tmp_path, f"models:/{MODEL}@champion", database_uri(work)) as address,
            PolicyClient(served.address) as client,
        ):
            for extrapolate in (False, True):
                answer = pd.DataFrame(invoked(address, frame, allow_extrapolation=extrapolate)["predictions"])
                for k, row in enumerate(frame.to_dict("records")):
                    profile = row["victim_profile"]
                    is_new = isinstance(profile, str)
                    victim = profile_of("new", json.loads(profile)) if is_new else row["victim"]
                    expected = client.predict(
                        [victim, row["neighbour"]], pairs=[(0, 1)], allow_extrapolation=extrapolate
                    ).prediction
                    for column, field in NUMBERS.items():
                        told = float(answer[column][k])
                        np.testing.assert_allclose(told, getattr(expected, field)[0], rtol=1e-5, err_msg=str(row))
                    assert answer.source[k] == expected.source[0].value
                assert "no profile of 'unknown'" in answer.reason.iloc[-1]
            with pytest.raises(urllib.error.HTTPError) as refused:
                invoked(address, frame.drop(columns="mode"))
            assert refused.value.code == 400
            assert "mode" in refused.value.read().decode()
            assert len(invoked(address, frame)["predictions"]) == len(frame)
    finally:
        served.stop()


def profile_of(name: str, facts: dict[str, float]) -> JobProfile:
    return JobProfile(workload=name, device_type="cpu-core", **facts)


def invoked(address: str, frame: pd.DataFrame, **params: bool) -> Any:
    body = {"dataframe_split": json.loads(frame.to_json(orient="split")), "params": params}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}/invocations", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def test_mlflow_evaluates_it(trained: tuple[Path, TrainingResult]) -> None:
    """On out-of-fold rows as the training logged them; measured pairs answer for themselves."""
    work, result = trained
    with tracked_run(work, "evaluation") as run:
        client = mlflow.MlflowClient()
        rows = client.load_table(run.experiment, "predictions.json", run_ids=[result.run_id])
        rows = rows[rows.split == "pair"][["victim", "neighbour", "device_type", "mode", "measured"]].astype(
            dict.fromkeys(("victim", "neighbour", "device_type", "mode"), object)
        )
        scored = mlflow.models.evaluate(
            f"models:/{MODEL}@champion",
            rows,
            targets="measured",
            predictions="slowdown",
            model_type="regressor",
        )
    assert scored.metrics["example_count"] == len(rows)
    assert scored.metrics["mean_absolute_error"] < 1e-5


def test_what_is_no_profile_is_refused_with_the_job(trained: tuple[Path, TrainingResult], names: list[str]) -> None:
    frame = asked(names)
    with mlflow_connection(trained[0]):
        model = mlflow.pyfunc.load_model(f"models:/{MODEL}@champion")
        for text, match in (("no json", "not the profile of a job: new"), ('{"speed": 1}', "speed"), ("[1]", "new")):
            frame.loc[frame.victim == "new", "victim_profile"] = text
            with pytest.raises(InvalidInputError, match=match):
                model.predict(frame)


def test_a_version_of_an_earlier_release_is_fetched_from_its_run(
    trained: tuple[Path, TrainingResult], tmp_path: Path
) -> None:
    """Its model is a graph alone, and its folder an artifact of the run."""
    result = trained[1]
    with tracked_run(tmp_path, "earlier") as run:
        mlflow.log_artifacts(str(result.folder), model_registry.PUBLISHED, run_id=run.id)
        (tmp_path / "graph").write_text("onnx")
        code = tmp_path / "code.py"
        code.write_text(
            "import mlflow\nclass Graph(mlflow.pyfunc.PythonModel):\n    def predict(self, model_input):\n"
            "        return model_input\nmlflow.models.set_model(Graph())\n"
        )
        info = mlflow.pyfunc.log_model(name="model", python_model=str(code), pip_requirements=["numpy"])
        client = mlflow.MlflowClient()
        client.create_registered_model(MODEL)
        client.create_model_version(MODEL, info.model_uri, run_id=run.id, tags={"folder_version": result.version})
        client.set_registered_model_alias(MODEL, "champion", "1")
        with model_registry.fetch_champion(mlflow) as champion:
            assert champion is not None
            assert {path.name for path in champion.folder.iterdir()} == {path.name for path in result.folder.iterdir()}
