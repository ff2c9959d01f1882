"""Rollout of the extender: shadow, canary, and changes at run time."""

import logging
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.extending import SettableMetrics, StaticView, extender_args, profiles

from runtime.settings.loading import load
from trimaran.extender.answer import NEUTRAL, PrioritizeOutcome, ScoredCandidates
from trimaran.extender.prioritizer import Prioritizer, PrioritizerOptions
from trimaran.extender.rollout import Rollout, follow_rollout
from trimaran.extender.settings import ExtenderSettings
from trimaran.extender.wire import ExtenderArgs

LOADS = {"node-1": 80.0, "node-2": 10.0}
UIDS = [f"uid-{number}" for number in range(5000)]


@pytest.mark.parametrize("canary", [0, 1, 10, 37.5, 99, 100])
def test_the_active_share_matches_the_canary(canary: float) -> None:
    """The share of active pods is within two points of the canary."""
    rollout = Rollout("active", canary)
    share = 100 * sum(map(rollout.is_active, UIDS)) / len(UIDS)
    assert abs(share - canary) < 2


def test_no_pod_is_active_in_shadow() -> None:
    """In shadow no pod is active, even with a canary of 100."""
    assert not any(Rollout("shadow", 100).is_active(uid) for uid in UIDS)


@given(st.text(max_size=50).filter(str.isprintable), st.floats(0, 100), st.floats(0, 100))
def test_a_larger_canary_includes_a_smaller_one(uid: str, one: float, other: float) -> None:
    """A pod that is active in a smaller canary is active in a larger one."""
    small, large = sorted((one, other))
    assert Rollout("active", small).is_active(uid) <= Rollout("active", large).is_active(uid)


def replace_file(file: Path, text: str) -> None:
    """Replace a file atomically, as a ConfigMap volume does."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def test_a_change_of_the_file_changes_the_rollout(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A changed file takes effect, an invalid or missing file changes nothing, and flags win over the file."""
    file = tmp_path / "settings.toml"
    replace_file(file, "[extender]\nmode = 'shadow'\n")
    rollout = follow_rollout(load(ExtenderSettings, file=file))
    assert rollout().percent == 0
    with caplog.at_level(logging.INFO):
        replace_file(file, "[extender]\nmode = 'active'\ncanary = 10\n")
        assert rollout() == Rollout("active", 10)
    assert "mode active: 10 percent of the pods" in caplog.text
    replace_file(file, "[extender]\ncanary = 1000\n")
    assert rollout() == Rollout("active", 10)
    file.unlink()
    assert rollout() == Rollout("active", 10)
    replace_file(file, "[extender]\nmode = 'shadow'\n")
    assert rollout().percent == 0
    fixed_rollout = follow_rollout(load(ExtenderSettings, {"extender.mode": "active"}, file))
    assert fixed_rollout().percent == 100


def test_by_default_no_pod_gets_scores() -> None:
    """The default is shadow, as in the chart; ``active`` without a canary is active for all pods."""
    assert follow_rollout(load(ExtenderSettings))().percent == Rollout().percent == 0
    assert follow_rollout(load(ExtenderSettings, {"extender.mode": "active"}))().percent == 100


@pytest.mark.parametrize("acts", [True, False])
def test_a_pod_in_shadow_is_recorded_and_answered_neutrally(acts: bool) -> None:
    """The scores are recorded in any case; in shadow all nodes get the same score, and no pod is assumed."""
    view, recorded = StaticView(*LOADS), []

    def record(request: ExtenderArgs, answer: ScoredCandidates, best: str, active: bool) -> None:
        recorded.append((request.pod.uid, answer, best, active))

    request = ExtenderArgs.decode(orjson.dumps(extender_args(*LOADS)))
    options = PrioritizerOptions(deadline_seconds=20)
    prioritizer = Prioritizer(
        profiles(), view, SettableMetrics(LOADS), options, is_active=lambda _: acts, record=record
    )  # fmt: skip
    answer = prioritizer.answer(request)
    prioritizer._preparer.thread.shutdown()
    ((uid, scored, best, active),) = recorded
    assert (uid, active, scored.outcome) == (request.pod.uid, acts, PrioritizeOutcome.SCORED)
    assert scored.scores["node-1"] < scored.scores["node-2"]
    assert best == "node-2"
    if acts:
        assert answer == scored
        assert view.assumed == [(uid, "node-2")]
    else:
        assert answer.outcome is PrioritizeOutcome.SHADOW
        assert set(answer.scores.items()) == {(name, NEUTRAL) for name in LOADS}
        assert view.assumed == []


def test_a_neutral_answer_keeps_its_outcome_in_shadow() -> None:
    """An outage keeps its outcome in shadow."""
    prioritizer = Prioritizer(
        profiles(), StaticView(*LOADS), SettableMetrics(None), PrioritizerOptions(20), is_active=lambda _: False
    )
    request = ExtenderArgs.decode(orjson.dumps(extender_args(*LOADS)))
    assert prioritizer.answer(request).outcome is PrioritizeOutcome.NO_METRICS
    prioritizer.close()
