"""Invalid settings of the services: all problems at once, as entries of the log where it is JSON."""

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from pydantic import BaseModel
from support.refusals import check_refusal
from support.servers import run_trimaran

from runtime.errors import SettingsError
from runtime.settings.fields import SettingsModel
from runtime.settings.loading import load
from trimaran.cli.main import main
from trimaran.extender.settings import ExtenderSettings
from trimaran.rebalancer.settings import RebalanceSettings
from trimaran.scheduler.service.settings import SchedulerSettings
from trimaran.soft_taints.settings import NodesSettings
from watcher.settings import WatcherSettings


@pytest.mark.parametrize("command", ["watch", "extender", "nodes"])
def test_invalid_values_and_provider_names_are_reported_together(command: str) -> None:
    """An invalid value does not hide the unknown name of a provider or of a fallback; the status is 2."""
    fallbacks = json.dumps([{"name": "Host"}, {"name": "Influx"}])
    settings = ["provider.name=Promethus", "server.port=abc", f"fallback.providers={fallbacks}"]
    done = run_trimaran(command, *(part for each in settings for part in ("--set", each)))
    assert done.returncode == 2
    assert done.stderr.startswith("trimaran: 3 settings ")
    assert "provider.name (METRICS_PROVIDER_NAME) = 'Promethus': " in done.stderr
    assert "fallback.providers[1].name = 'Influx': " in done.stderr


@pytest.mark.parametrize("command", ["watch", "extender", "nodes"])
@pytest.mark.parametrize("invalid", ["server.port=abc", "watch.interval_seconds=20"])
def test_problems_are_entries_of_a_log_in_json(command: str, invalid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With log.format json every line on standard error is an entry, one for each problem; the status is 2."""
    monkeypatch.setenv("TRIMARAN_LOG__FORMAT", "json")
    done = run_trimaran(command, "--set", "provider.name=Promethus", "--set", invalid)
    assert done.returncode == 2
    entries = [json.loads(line) for line in done.stderr.splitlines()]
    assert {(entry["level"], entry["message"]) for entry in entries} == {("error", "a setting cannot be used")}
    assert any("Promethus" in entry["problem"] for entry in entries)


@pytest.mark.parametrize(
    ("command", "problem"),
    [(("watch", "--set=server.tokens_file=/none/tokens"), "/none/tokens"), (("extender",), "extender.config: ")],
)
def test_files_and_providers_are_reported_together(command: tuple[str, ...], problem: str) -> None:
    """A file that is missing or cannot be read does not wait for the provider's name to be right."""
    done = run_trimaran(*command, "--set", "provider.name=Promethus")
    assert done.returncode == 2
    assert "2 settings" in done.stderr
    assert problem in done.stderr


@pytest.mark.parametrize(
    "command", [("scheduler", "--name", "ours"), ("extender",), ("rebalance",), ("nodes", "--taints")]
)
def test_credentials_for_the_watcher_are_checked_at_the_start(command: tuple[str, ...]) -> None:
    """A token file or CA file that does not exist is an error, not a service that never gets metrics."""
    files = [f"--set=cluster.watcher_{kind}_file=/none/{kind}" for kind in ("token", "ca")]
    done = CliRunner().invoke(main, [*command, "--watcher", "http://127.0.0.1:9", *files])
    check_refusal(done, "cluster.watcher_token_file: ", "cluster.watcher_ca_file: ")


def names(model: type[BaseModel], section: str = "") -> Iterator[str]:
    """Yield the names of all settings of a service."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from names(field.annotation, f"{section}{name}.")
        else:
            yield f"{section}{name}"


@pytest.mark.parametrize(
    "model", [WatcherSettings, ExtenderSettings, RebalanceSettings, SchedulerSettings, NodesSettings]
)
def test_no_problem_quotes_a_whole_value(model: type[SettingsModel]) -> None:
    """Each setting with a value of 100,000 characters, and names of settings that are as long, give short lines."""
    long = "x" * 100_000
    found: list[str] = []
    for name in (*names(model), f"watch.{long}", f"{long}.x"):
        try:
            load(model, {name: long})
        except SettingsError as error:
            found += error.problems
    assert len(found) > 10
    assert [each[:100] for each in found if len(each) > 5_000] == []
