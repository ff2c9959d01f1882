"""Tests of the provider Fake: configured nodes and simulated failures."""

import json
import re
import time
from pathlib import Path

import pytest
from support.waiting import LIMIT_SECONDS, wait_until

from client import LibraryClient
from runtime.http.gather import Deadline
from watcher.errors import ProviderAnswerError, ProviderError, ProviderRefused, ProviderUnavailable
from watcher.model import Window
from watcher.providers.base import Fetched
from watcher.providers.fake import FakeProvider
from watcher.settings import FakeSettings, ProviderSettings, Settings, WatchSettings

PAGE = Path(__file__).parents[2] / "docs" / "providers" / "fake.md"


def fetch(window: str = "15m", operators: tuple[str, ...] = ("AVG", "STD"), **own: object) -> Fetched:
    """Fetch once; a constant may be another one."""
    windows = own.pop("failing_windows", ())
    fake = FakeSettings.model_validate(own).model_copy(update={"failing_windows": windows})
    settings = Settings(fake=fake, watch=WatchSettings(operators=list(operators)))
    return FakeProvider(settings).fetch(Window(window, 0, 900), Deadline.after(5))


def values(fetched: Fetched, node: str) -> dict[tuple[str, str], float]:
    """Return one node's values by type and operator."""
    return {(metric.type, metric.operator): metric.value for metric in fetched.nodes[node].metrics}


def test_nodes_without_a_file():
    """Nodes have CPU and Memory within 0 to 100, equal in every window and run, but not equal among nodes."""
    once, again = fetch(nodes=100), fetch(nodes=100)
    assert once == again
    assert list(once.nodes) == [f"node-{number}" for number in range(1, 101)]
    for node in once.nodes:
        found = values(once, node)
        assert set(found) == {("CPU", "AVG"), ("CPU", "STD"), ("Memory", "AVG"), ("Memory", "STD")}
        assert all(0 <= value <= 100 for value in found.values())
    assert len({values(once, node)["CPU", "AVG"] for node in once.nodes}) > 10


@pytest.mark.parametrize("suffix", ["json", "toml"])
def test_nodes_from_a_file(tmp_path, suffix):
    """Numbers are averages; deviation, percentiles and other resources are served if configured."""
    file = tmp_path / f"nodes.{suffix}"
    file.write_text(
        '{"a.example.com": {"cpu": 20}, "b": {"cpu": {"average": 85, "deviation": 12, "p99": 99}, "gpu": 50}}'
        if suffix == "json"
        else '["a.example.com"]\ncpu = 20\n[b]\ngpu = 50\ncpu = {average = 85, deviation = 12, p99 = 99}\n'
    )
    fetched = fetch(file=file)
    assert values(fetched, "a.example.com") == {("CPU", "AVG"): 20}
    assert values(fetched, "b") == {("CPU", "AVG"): 85, ("CPU", "STD"): 12, ("GPU", "AVG"): 50}
    assert values(fetch(file=file, operators=("AVG", "P99")), "b")["CPU", "P99"] == 99
    names = {metric.name for node in fetched.nodes.values() for metric in node.metrics}
    assert names == {"fake:cpu:percent", "fake:gpu:percent"}


def test_file_is_read_at_every_fetch(tmp_path):
    """A changed file changes the next fetch."""
    file = tmp_path / "nodes.json"
    settings = Settings(
        provider=ProviderSettings(name="Fake"), fake=FakeSettings(file=file), watch=WatchSettings(interval_seconds=0.1)
    )
    file.write_text('{"a": {"cpu": 20}}')
    with LibraryClient(settings) as client:
        assert client.metrics().data["a"].metrics[0].value == 20
        replacement = tmp_path / "other.json"
        replacement.write_text('{"a": {"cpu": 30}}')
        replacement.replace(file)
        wait_until(lambda: client.metrics().data["a"].metrics[0].value == 30, "the change is seen")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "neither JSON nor TOML"),
        ("[]", "must be an object"),
        ('{"a": 20}', 'a must be an object such as {"cpu": 20}'),
        ('{"a": {"cup": 20}}', "a has the unknown resource 'cup'; known: cpu, memory"),
        ('{"a": {"cpu": "20"}}', "a.cpu must have numbers"),
        ('{"a": {"cpu": true}}', "a.cpu must have numbers"),
        ('{"a": {"cpu": {"mean": 20}}}', "must have numbers for average, deviation"),
        ('{"a": {"cpu": null}}', "a.cpu must have numbers"),
    ],
)
def test_invalid_file(tmp_path, text, says):
    """The error names file, node and key; check() has the same message and names the setting."""
    file = tmp_path / "nodes.json"
    file.write_text(text)
    with pytest.raises(ProviderAnswerError, match=re.escape(says)) as caught:
        fetch(file=file)
    assert str(file) in str(caught.value)
    (step,) = FakeProvider(Settings(fake=FakeSettings(file=file))).check()
    assert (step.ok, step.setting) == (False, "fake.file")


def test_missing_file(tmp_path):
    """A missing file is an error with the system's message."""
    with pytest.raises(ProviderUnavailable, match="No such file"):
        fetch(file=tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    ("failure", "expected"),
    [("unavailable", ProviderUnavailable), ("refused", ProviderRefused), ("unusable", ProviderAnswerError)],
)
def test_simulated_failures(failure, expected):
    """Each failure raises its kind of ProviderError, in each window that fails."""
    with pytest.raises(expected, match=r"fake\.failure"):
        fetch(failure=failure)
    with pytest.raises(expected):
        fetch("15m", failure=failure, failing_windows=("15m", "10m"))
    assert fetch("5m", failure=failure, failing_windows=("15m", "10m")).nodes


def test_empty_result_is_a_failure():
    """The failure ``empty`` is a result without nodes, which a watcher never publishes."""
    assert not fetch(failure="empty").nodes


def test_slow_ends_at_the_deadline():
    """A slow source fails at the deadline, or at once when it is closed."""
    provider = FakeProvider(Settings(fake=FakeSettings(failure="slow")))
    began = time.monotonic()
    with pytest.raises(ProviderUnavailable):
        provider.fetch(Window("5m", 0, 300), Deadline.after(0.2))
    assert 0.2 <= time.monotonic() - began < LIMIT_SECONDS
    provider.close()
    with pytest.raises(ProviderError):
        provider.fetch(Window("5m", 0, 300), Deadline.after(600))
    assert time.monotonic() - began < 2 * LIMIT_SECONDS


def test_example_on_the_page(tmp_path):
    """The page's example test passes, and its JSON is a valid file."""
    text = PAGE.read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    names["test_the_calm_node_wins"](tmp_path)
    (described,) = re.findall(r"```json\n(.*?)```", text, flags=re.DOTALL)
    file = tmp_path / "nodes.json"
    file.write_text(described)
    assert set(fetch(file=file).nodes) == set(json.loads(described)) == {"node-1", "node-2"}
