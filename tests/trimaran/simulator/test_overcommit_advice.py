"""The table of ``trimaran simulate overcommit``: its rules, its cells and its verdicts."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.worlds import small_world

from trimaran.cli.main import main
from trimaran.simulator.measures import measures
from trimaran.simulator.overcommit_advice import RECOMMENDED, SCHEDULERS, advice, rows, rules, verdicts
from trimaran.simulator.policies.catalogue import policies
from trimaran.simulator.replay import Replay, ReplayOptions
from trimaran.simulator.report.section import ReportSection
from trimaran.traces.reading import read_trace
from trimaran.traces.trace import write_trace

FACTORS = (1.0, 1.5, 2.0)


def section(**by_policy: dict[str, float]) -> ReportSection:
    return ReportSection("", {}, {"days": by_policy})


def measured(short: float, *, unplaced: float = 0.0, memory: float = 0.0) -> dict[str, float]:
    values = {"cpu_short_percent": short, "memory_short_percent": memory, "unplaced_pods": unplaced}
    return {**values, "cpu_requested_percent": 80.0, "hot_minutes_80": 100 * short}


def both(default: dict[str, float], ours: dict[str, float]) -> ReportSection:
    return section(**{"default": default, "congestion-cost": ours})


def test_recommended_requests_stand_under_their_schedulers() -> None:
    """The policies with recommended requests are shown as the schedulers that they are, next to the other rules."""
    replays = rules((1.0,))
    assert replays["1"].overcommit == replays[RECOMMENDED].overcommit == (1.0, 1.0)
    ours, default = measured(0.1), measured(0.2)
    right_sized = section(**{"right-sized": default, "congestion-cost+right-sized": ours})
    found = advice(["1", RECOMMENDED], [both(ours, ours), right_sized])
    assert found["days"][RECOMMENDED] == {"default": default, "congestion-cost": ours}
    assert [row[:2] for row in rows(found)] == [["days", "as written"], ["days", RECOMMENDED]]


def test_a_verdict_names_the_largest_safe_divisor() -> None:
    """A divisor above an unsafe one is not safe, whatever its own figures; an interrupted replay is not safe either."""
    sections = [
        both(measured(0.5, unplaced=3), measured(0.1)),
        both(measured(1.2), measured(0.9)),
        both(measured(0.9), measured(0.2, memory=1.1)),
    ]
    found = advice([f"{factor:g}" for factor in FACTORS], sections)
    (line,) = verdicts(found, FACTORS)
    assert "default up to 1, congestion-cost up to 1.5; all pods are placed from 1.5 on" in line
    interrupted = advice(["1"], [section(default=measured(0.1, unplaced=2))])
    (line,) = verdicts(interrupted, FACTORS)
    assert "default up to 1, congestion-cost none; some pods are never placed" in line
    assert [row[-1] for row in rows(interrupted)] == ["10 / -"]


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "days"
    write_trace(small_world(2, [("Deployment", 0.6), ("Job", 1.1)] * 6), folder)
    return folder


def test_the_command_replays_every_rule_with_both_schedulers(days: Path) -> None:
    """The document has the measures of each rule and scheduler, which are those of single replays."""
    command = ["simulate", "overcommit", str(days), "--overcommit", "1,2", "-o", "json"]
    answered = CliRunner().invoke(main, command)
    assert answered.exit_code == 0, answered.stderr
    found = json.loads(answered.stdout)["days"]
    assert list(found) == ["1", "2", RECOMMENDED]
    assert all(list(each) == list(SCHEDULERS) for each in found.values())
    assert "6 of 6: days, congestion-cost+right-sized" in answered.stderr
    trace = read_trace(days)
    for rule, policy, options in (
        ("2", "default", ReplayOptions(overcommit=(2.0, 2.0))),
        (RECOMMENDED, "right-sized", ReplayOptions(overcommit=(1.0, 1.0))),
    ):
        assert found[rule]["default"] == measures(Replay(trace, policies(trace)[policy], options).run())


def test_the_command_prints_one_table(days: Path) -> None:
    """The text has a row for each rule and a verdict, and a factor out of range is refused."""
    answered = CliRunner().invoke(main, ["simulate", "overcommit", str(days), "--overcommit", "1.5"])
    lines = answered.stdout.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["WORLD", "days", "days"]
    assert "divided by 1.5" in lines[1]
    assert lines[-1].startswith("days: ")
    refused = CliRunner().invoke(main, ["simulate", "overcommit", str(days), "--overcommit", "0"])
    assert refused.exit_code == 2
