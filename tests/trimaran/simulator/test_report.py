"""Reports of comparisons: intervals, losing cases, tables, and the page with figures."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from support.page import browser

from trimaran.cli.main import main
from trimaran.simulator.comparison import Comparison
from trimaran.simulator.measures import measures
from trimaran.simulator.policies.catalogue import policies, policy_names
from trimaran.simulator.replay import Replay
from trimaran.simulator.report import statistics
from trimaran.simulator.report.page import document, page
from trimaran.simulator.report.section import ReportSection
from trimaran.simulator.report.text import tables
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import write_trace

HOT = "hot_minutes_80"


def row(hot: float, **others: float) -> dict[str, float]:
    """Return a policy's measures: the same hot minutes everywhere, with exceptions by name."""
    names = dict.fromkeys((*statistics.LESS_IS_BETTER, "moves"), 0.0)
    return names | dict.fromkeys(statistics.GAP_MEASURES, hot) | others


COMPARISON = {
    "calm": {"default": row(100.0), "cooler": row(60.0), "clairvoyant": row(20.0)},
    "busy": {"default": row(200.0), "cooler": row(210.0, unplaced_pods=3.0), "clairvoyant": row(100.0)},
    "idle": {"default": row(0.0), "cooler": row(0.0), "clairvoyant": row(0.0)},
}


def five_worlds() -> Comparison:
    """Return a comparison of five worlds, of which three have a gap between the default and the clairvoyant."""
    return COMPARISON | {"calm-2": COMPARISON["calm"], "idle-2": COMPARISON["idle"]}


class Elements(HTMLParser):
    """Parser of the elements of a page and their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["simulate", *map(str, arguments)])


def test_the_interval_is_a_bootstrap_interval() -> None:
    """The interval is near the normal one for many worlds, is reproducible, and needs five worlds."""
    values = np.random.default_rng(3).normal(50, 10, 400).tolist()
    found = statistics.interval(values)
    assert found == statistics.interval(values)
    half = 1.96 * float(np.std(values)) / 20
    assert found.mean == pytest.approx(np.mean(values))
    assert (found.low, found.high) == pytest.approx((found.mean - half, found.mean + half), abs=0.1)
    assert statistics.interval([7.0]) == statistics.Interval(7.0, None, None, 1)
    assert statistics.interval([1.0, 2.0, 3.0, 6.0]) == statistics.Interval(3.0, None, None, 4)
    assert statistics.interval([1.0] * 5) == statistics.Interval(1.0, 1.0, 1.0, 5)


def test_the_gap_closed_goes_from_the_default_to_the_clairvoyant() -> None:
    """A world in which the clairvoyant is no better than the default is left out."""
    assert statistics.gap_closed(COMPARISON, "cooler", HOT, "clairvoyant") == {"calm": 50.0, "busy": -10.0}
    assert statistics.gaps(COMPARISON)["clairvoyant"]["cooler"][HOT].mean == 20.0
    assert statistics.gaps({"calm": {"default": row(1.0)}}) == {}


def test_the_gap_to_the_oracle_is_reported_if_it_was_replayed() -> None:
    """Text, page and document have the gap to the oracle only if the oracle was replayed."""
    with_oracle = COMPARISON | {"calm": COMPARISON["calm"] | {"oracle": row(0.0)}}
    assert statistics.gap_closed(with_oracle, "cooler", HOT, "oracle") == {"calm": 40.0}
    *_, clairvoyant, oracle = tables(with_oracle).split("\n\n")
    assert clairvoyant.startswith("gap closed, %: default is 0, clairvoyant 100")
    assert oracle.startswith("gap closed, %: default is 0, oracle 100")
    assert re.search(r"clairvoyant +80 .*\n  worse in +0 ", oracle)
    overcommit = dict.fromkeys(COMPARISON, 1.5)
    sections = [ReportSection("", overcommit, comparison) for comparison in (with_oracle, COMPARISON)]
    gaps = [document([section])[0]["gap_closed_percent"] for section in sections]
    assert gaps[0]["oracle"]["cooler"][HOT]["mean"] == 40.0
    assert [list(by_goal) for by_goal in gaps] == [["clairvoyant", "oracle"], ["clairvoyant"]]
    assert 'colspan="4">oracle</th>' in page([sections[0]], "trimaran")
    assert ">oracle" not in page([sections[1]], "trimaran")


def test_every_losing_case_is_listed() -> None:
    """A case is lost in each measure in which the policy exceeds the default scheduler."""
    lost = list(statistics.lost_cases(COMPARISON))
    assert {(each.world, each.policy) for each in lost} == {("busy", "cooler")}
    assert [each.measure for each in lost] == [*statistics.GAP_MEASURES, "unplaced_pods"]
    assert (lost[0].value, lost[0].default) == (210.0, 200.0)


def test_less_is_better_for_all_measures_but_costs() -> None:
    """Less is better in every measure, including those of services and jobs, except for moves, nodes and requests."""
    trace = Synthetic(nodes=2, minutes=60, warm_up_minutes=10).trace()
    names = measures(Replay(trace, policies(trace)["random"]).run())
    neither = {"moves", "moves_percent_per_hour", "nodes", "node_minutes", "cpu_requested_percent"}
    assert set(statistics.LESS_IS_BETTER) == names.keys() - neither
    less = {"service_waited_pod_minutes": 2.0, "job_hot_pod_minutes": 1.0, "displaced_pods": 3.0}
    compared = {"calm": {"default": row(5.0), "cooler": row(4.0, **less)}}
    assert {each.measure: each.value for each in statistics.lost_cases(compared)} == less


def test_the_pareto_front_has_no_dominated_point() -> None:
    """Less of x and more of y is better; of two points with equal x or y one remains."""
    points = {"far": (9.0, 9.0), "best": (1.0, 5.0), "beaten": (2.0, 4.0), "same": (1.0, 3.0), "more": (3.0, 7.0)}
    assert statistics.pareto(points) == ["best", "more", "far"]


def test_the_table_ends_with_intervals_over_worlds() -> None:
    """Means and gaps closed over several worlds follow the worlds, with intervals from five worlds on."""
    *_, means, gaps = tables(five_worlds()).split("\n\n")
    assert means.startswith("5 worlds: ")
    assert re.search(r"cooler +66 .*\n  from +12 .*\n  to +138 ", means)
    assert re.search(r"cooler +30 .*\n  worse in +1 ", gaps)
    assert "bootstrap" not in tables({"calm": COMPARISON["calm"]})
    assert "gap closed: not available" in tables({name: {"default": row(1.0)} for name in "ab"})


def test_fewer_than_five_worlds_have_no_interval() -> None:
    """The bootstrap is too narrow for a few worlds: text, page, figures and document have means alone and say so."""
    _, _, _, means, gaps = tables(COMPARISON).split("\n\n")
    assert means.startswith("3 worlds: ")
    assert re.search(r"cooler +90 .*\nclairvoyant +40 ", means)
    assert re.search(r"cooler +20 .*\n  worse in +1 ", gaps)
    sections = [ReportSection(factor, dict.fromkeys(COMPARISON, 1.5), COMPARISON) for factor in ("1", "1.5")]
    found = document(sections)[0]
    assert found["means"]["cooler"][HOT] == {"mean": 90.0, "low": None, "high": None, "worlds": 3}
    assert found["gap_closed_percent"]["clairvoyant"]["cooler"][HOT]["low"] is None
    text = page(sections, "trimaran")
    assert not re.search("<small>[0-9.-]+ to ", text)
    assert re.search(
        "<small>[0-9.-]+ to ", page([ReportSection("", dict.fromkeys(five_worlds(), 1.5), five_worlds())], "trimaran")
    )


def test_means_are_over_the_worlds_that_all_policies_have() -> None:
    """After an interruption the last world lacks policies: text, page and document take their means without it."""
    interrupted = COMPARISON | {"busy": {"default": COMPARISON["busy"]["default"]}}
    assert statistics.by_policy(interrupted)["default"][HOT] == statistics.Interval(50.0, None, None, 2)
    *_, means, gaps = tables(interrupted).split("\n\n")
    assert means.startswith("2 of 3 worlds")
    assert re.search(r"default +50 .*\ncooler +30 .*\nclairvoyant +10 ", means)
    assert re.search(r"cooler +50 .*\n  worse in +0 ", gaps)
    section = ReportSection("", dict.fromkeys(COMPARISON, 1.5), interrupted, whole=False)
    assert document([section])[0]["means"]["default"][HOT]["mean"] == 50.0
    assert page([section], "trimaran")
    disjoint = {"a": {"default": row(1.0)}, "b": {"cooler": row(1.0)}}
    assert tables(disjoint).endswith("means: not available: no world has all policies")
    assert page([ReportSection("", dict.fromkeys("ab", 1.5), disjoint, whole=False)], "trimaran")


def test_the_tables_fit_a_screen() -> None:
    """No line is longer than 160 characters with all policies in large worlds, and missing measures have no column."""
    large = row(123_456.0, throttled_core_seconds=1_234_567.89, waited_pod_minutes=123_456.0, node_minutes=1e6)
    saved = {name: large | {"nodes_saved_percent": 12.34} for name in policy_names()}
    better = row(12_345.0, node_minutes=1e6, nodes_saved_percent=12.34)
    text = tables({name: saved | {"clairvoyant": better} for name in ("a-world-of-large-nodes", "another")})
    assert max(map(len, text.splitlines())) <= 160
    assert all(policy in text for policy in policy_names())
    assert "12.34" in text
    assert "saved" not in tables(COMPARISON)


def test_the_page_is_self_contained_and_has_all_figures() -> None:
    """The page contains all images with texts, fetches nothing, and escapes the names of worlds."""
    saved = {
        f"<b>{world}": {name: each | {"nodes_saved_percent": 5.0} for name, each in rows.items()}
        for world, rows in COMPARISON.items()
    }
    heat = {"default": [[10, 90], [5, 120]]}
    compared = [
        ReportSection(factor, dict.fromkeys(saved, float(factor)), saved, heat, "<b>calm", 2.0)
        for factor in ("1", "1.5")
    ]
    text = page(compared, "trimaran")
    elements = Elements(text).found
    images = [attributes for tag, attributes in elements if tag == "img"]
    assert [str(each["alt"]).partition(".")[0] for each in images] == [
        "Benefit against overcommit, hot at 70 %", "Benefit against overcommit, hot at 80 %",
        "Benefit against overcommit, hot at 90 %",
        *["Gap closed to clairvoyant", "Nodes saved against hot minutes", "Nodes over time"] * 2,
    ]  # fmt: skip
    assert all(str(each["src"]).startswith("data:image/") for each in images)
    assert not [tag for tag, attributes in elements if tag in {"script", "link", "iframe", "b"} or "href" in attributes]
    assert "cooler: in 1 of 3 worlds" in text
    assert f"{HOT} 210 (200)" in text


@pytest.mark.server
@pytest.mark.slow
def test_the_page_is_accessible_and_fetches_nothing(tmp_path: Path) -> None:
    """Axe reports no serious problem, every image is drawn, and the browser requests only the file."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    compared = ReportSection("", dict.fromkeys(COMPARISON, 1.5), COMPARISON, {"default": [[10, 90]]}, "calm", 2.0)
    file = tmp_path / "report.html"
    file.write_text(page([compared], "trimaran"))
    with browser() as chromium:
        shown = chromium.new_page()
        arguments: list[str] = []
        shown.on("request", lambda request: arguments.append(request.url))
        shown.goto(file.as_uri())
        assert [url for url in arguments if not url.startswith("data:")] == [file.as_uri()]
        assert shown.evaluate("[...document.images].every(each => each.complete && each.naturalWidth > 0)")
        found = axe.Axe().run(shown).response["violations"]
        shown.close()
    assert [each["id"] for each in found if each["impact"] in {"serious", "critical"}] == []


@pytest.mark.slow
def test_a_report_is_written_in_addition_to_the_output(tmp_path: Path) -> None:
    """The option --html writes page and document, leaves the output unchanged, and uses stored replays."""
    world = tmp_path / "world"
    write_trace(Synthetic(seed=1, nodes=6, minutes=180, warm_up_minutes=60).trace(), world)
    arguments = ("compare", "--trace", world, "--policy", "default", "--policy", "clairvoyant", "--json")
    plain = run(*arguments, "--resume-file", tmp_path / "kept")
    drawn = run(*arguments, "--resume-file", tmp_path / "kept", "--html", tmp_path / "new" / "report.html")
    assert drawn.exit_code == 0, drawn.stderr
    assert drawn.stdout == plain.stdout
    (section,) = json.loads((tmp_path / "new" / "report.json").read_text())
    assert section["worlds"] == json.loads(plain.stdout)
    heat = section["heat"]["cpu_percent"]["default"]
    assert (len(heat), len(heat[0])) == (6, 120)
    first = (tmp_path / "new" / "report.html").read_bytes()
    again = run(*arguments, "--resume-file", tmp_path / "kept", "--html", tmp_path / "new" / "report.html")
    assert again.exit_code == 0
    assert (tmp_path / "new" / "report.html").read_bytes() == first


def test_a_report_named_json_is_refused(tmp_path: Path) -> None:
    """A report with the name of its JSON document is refused before any replay."""
    refused = run("compare", "--html", tmp_path / "report.json")
    assert refused.exit_code == 2
    assert "name the report report.html" in refused.stderr
