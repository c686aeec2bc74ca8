"""Laws of settings files, for every adapter: what is unknown or of another type is named, and nothing is half read."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from interfere.errors import InvalidInputError
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings
from interfere.serving.adapters.settings import AdapterSettings
from interfere.serving.adapters.slurm.settings import DeviceRule, SlurmSettings

KINDS = {"slurm": (SlurmSettings, '[[devices]]\ntype = "a100"\n'), "kubernetes": (KubernetesSettings, "")}
WRONG: dict[Any, str] = {float: '"2"', int: "true", bool: "1", str: "5"}  # TOML of another type


def read(kind: type[AdapterSettings], folder: Path, text: str) -> AdapterSettings:
    file = folder / "adapter.toml"
    file.write_text(text)
    return kind.load(file, {})


@pytest.mark.parametrize("name", KINDS)
def test_every_setting_refuses_a_value_of_another_type_by_its_name(tmp_path: Path, name: str) -> None:
    kind, needed = KINDS[name]
    wrong = {each.name: WRONG[each.type] for each in fields(kind) if each.type in WRONG}
    assert len(wrong) >= 15
    with pytest.raises(InvalidInputError) as caught:
        read(kind, tmp_path, "".join(f"{key} = {value}\n" for key, value in wrong.items()) + needed)
    assert {each.field for each in caught.value.violations} == set(wrong), "all of them at once"
    assert all(each.remedy for each in caught.value.violations)


@pytest.mark.parametrize("name", KINDS)
def test_what_both_have_in_common_means_the_same(tmp_path: Path, name: str) -> None:
    kind, needed = KINDS[name]
    text = 'server = "a:1"\ncluster = "c"\nwindow_s = 8\ninterval_s = 2\njournal = "/j"\n'
    found = read(kind, tmp_path, text + needed)
    assert (found.server, found.cluster, found.window_s, found.journal) == ("a:1", "c", 8, Path("/j"))
    for broken in ("window_s = 7", "priority_unit = -1", "lookback_s = 0", "most_tries = 0"):
        with pytest.raises(InvalidInputError):
            read(kind, tmp_path, f"{broken}\n{needed}")


def test_a_rule_of_a_list_is_named_by_its_place(tmp_path: Path) -> None:
    rules = ['type = "a100"', 'type = "x"\nmode = "both"', 'nodes = "b*"\nmemory_gib = "8"']
    text = "".join(f"[[devices]]\n{rule}\n" for rule in rules)
    with pytest.raises(InvalidInputError) as caught:
        read(SlurmSettings, tmp_path, text)
    fields_told = ["devices[1].mode", "devices[2].memory_gib", "devices[2].type"]
    assert [each.field for each in caught.value.violations] == fields_told


def test_probes_are_asked_for_within_their_limits_and_never_unasked() -> None:
    plain = SlurmSettings(devices=(DeviceRule(type="a100"),))
    assert plain.limits().probe.probe_devices == 0
    asked = replace(plain, probe_devices=2, probe_cap=3.0, probe_risk=0.5).limits().probe
    assert (asked.probe_devices, asked.probe_cap, asked.probe_risk) == (2, 3.0, 0.5)
    with pytest.raises(InvalidInputError, match="probe_devices"):
        replace(plain, probe_devices=-1)
