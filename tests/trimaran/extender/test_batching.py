"""Tests of the notice that an extender turns kube-scheduler's batching of identical pods off."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from trimaran.cli.main import main
from trimaran.extender.batching import batching_notice
from trimaran.extender.kube_scheduler import ExtenderEndpoint, render_config

NO_CONSTRAINTS = {"name": "PodTopologySpread", "args": {"defaultingType": "List"}}
CONSTRAINT = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}


def rendered(*plugin_config: dict[str, Any], profiles: int = 1) -> dict[str, Any]:
    """Return a file for kube-scheduler with the extender; the first profile has the arguments."""
    score = {"enabled": [{"name": "TargetLoadPacking"}]}
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "schedulerName": f"s-{number}",
                "plugins": {"score": score},
                "pluginConfig": [*plugin_config][: 1 - number],
            }
            for number in range(profiles)
        ],
    }
    return render_config(document, ExtenderEndpoint("http://extender:2021"), "1.37")


@pytest.mark.parametrize(
    ("document", "version", "expected"),
    [
        (rendered(NO_CONSTRAINTS), "1.37", "to keep batching, mark hot nodes with trimaran nodes"),
        (rendered(NO_CONSTRAINTS, profiles=2), "1.35", "a second kube-scheduler without extenders"),
        (rendered(), "1.37", "This file loses nothing: PodTopologySpread has default constraints"),
        (
            rendered(
                {"name": "PodTopologySpread", "args": {"defaultingType": "List", "defaultConstraints": [CONSTRAINT]}}
            ),
            "1.37",
            "This file loses nothing",
        ),
        (rendered(NO_CONSTRAINTS), "1.34", ""),
        ({**rendered(NO_CONSTRAINTS), "extenders": []}, "1.37", ""),
    ],
)
def test_the_notice_names_what_is_lost(document: dict[str, Any], version: str, expected: str) -> None:
    """From 1.35 on an extender costs batching, unless default constraints of spreading prevent it anyway."""
    notice = batching_notice(document, version)
    assert expected in notice
    assert bool(notice) == bool(expected)


def test_check_prints_the_notice(tmp_path: Path) -> None:
    """``--check`` prints the notice to standard error, and the file stays valid."""
    file = tmp_path / "stock.yaml"
    file.write_text(yaml.safe_dump(rendered(NO_CONSTRAINTS)))
    done = CliRunner().invoke(main, ["extender", "config", "--check", str(file), "--kubernetes-version", "1.37"])
    assert (done.exit_code, done.stdout) == (0, "the configuration is valid, and uses the extender\n")
    assert "to keep batching" in done.stderr
