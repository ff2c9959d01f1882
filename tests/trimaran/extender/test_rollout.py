"""For which pods the extender acts, and how that is changed while it runs."""

import logging
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.extending import HeldMetrics, StillView, asked, profiles

from runtime.settings.loading import load
from trimaran.extender.answer import NEUTRAL, PrioritizeOutcome, ScoredCandidates
from trimaran.extender.prioritizer import Prioritizer, PrioritizerOptions
from trimaran.extender.rollout import Rollout, follow_rollout
from trimaran.extender.settings import ExtenderSettings
from trimaran.extender.wire import ExtenderArgs

LOADS = {"node-1": 80.0, "node-2": 10.0}
UIDS = [f"uid-{number}" for number in range(5000)]


@pytest.mark.parametrize("canary", [0, 1, 10, 37.5, 99, 100])
def test_the_share_is_what_was_asked_for(canary: float) -> None:
    """Of many pods so many percent are acted for."""
    rollout = Rollout("active", canary)
    share = 100 * sum(map(rollout.is_active, UIDS)) / len(UIDS)
    assert abs(share - canary) < 2


def test_shadow_acts_for_no_pod() -> None:
    """Whatever the canary says."""
    assert not any(Rollout("shadow", 100).is_active(uid) for uid in UIDS)


@given(st.text(max_size=50).filter(str.isprintable), st.floats(0, 100), st.floats(0, 100))
def test_who_is_in_stays_in(uid: str, one: float, other: float) -> None:
    """A larger share has all pods of a smaller one, so that nobody changes sides twice."""
    small, large = sorted((one, other))
    assert Rollout("active", small).is_active(uid) <= Rollout("active", large).is_active(uid)


def written(file: Path, text: str) -> None:
    """Write a file as one whole, as a ConfigMap's volume does."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def test_one_edit_turns_it_on_and_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The file is read anew when it changes; what cannot be read changes nothing; flags win over it."""
    file = tmp_path / "settings.toml"
    written(file, "[extender]\nmode = 'shadow'\n")
    acting = follow_rollout(load(ExtenderSettings, file=file))
    assert acting().percent == 0
    with caplog.at_level(logging.INFO):
        written(file, "[extender]\ncanary = 10\n")
        assert acting() == Rollout("active", 10)
    assert "another share" in caplog.text
    written(file, "[extender]\ncanary = 1000\n")
    assert acting() == Rollout("active", 10)
    file.unlink()
    assert acting() == Rollout("active", 10)
    written(file, "[extender]\nmode = 'shadow'\n")
    assert acting().percent == 0
    fixed = follow_rollout(load(ExtenderSettings, {"extender.mode": "active"}, file))
    assert fixed().percent == 100


def test_without_a_file_nothing_is_read_anew() -> None:
    """The defaults act for all."""
    assert follow_rollout(load(ExtenderSettings))() == Rollout("active", 100)


@pytest.mark.parametrize("acts", [True, False])
def test_a_pod_in_shadow_is_answered_alike_and_recorded(acts: bool) -> None:
    """What would have been answered is recorded either way; in shadow all get the same, and nothing is assumed."""
    view, noted = StillView(*LOADS), []

    def record(request: ExtenderArgs, answer: ScoredCandidates, best: str, active: bool) -> None:
        noted.append((request.pod.uid, answer, best, active))

    request = ExtenderArgs.decode(orjson.dumps(asked(*LOADS)))
    options = PrioritizerOptions(deadline_seconds=20)
    made = Prioritizer(
        profiles(), view, HeldMetrics(LOADS), options, is_active=lambda _: acts, record=record
    )  # fmt: skip
    answer = made.answer(request)
    made._thread.shutdown()
    ((uid, would, best, active),) = noted
    assert (uid, active, would.outcome) == (request.pod.uid, acts, PrioritizeOutcome.SCORED)
    assert would.scores["node-1"] < would.scores["node-2"]
    assert best == "node-2"
    if acts:
        assert answer == would
        assert view.assumed == [(uid, "node-2")]
    else:
        assert answer.outcome is PrioritizeOutcome.SHADOW
        assert set(answer.scores.items()) == {(name, NEUTRAL) for name in LOADS}
        assert view.assumed == []


def test_what_is_alike_anyway_keeps_its_outcome() -> None:
    """Shadow hides no outage: an answer that is the same for all tells why, whether it is acted for or not."""
    made = Prioritizer(
        profiles(), StillView(*LOADS), HeldMetrics(None), PrioritizerOptions(20), is_active=lambda _: False
    )
    request = ExtenderArgs.decode(orjson.dumps(asked(*LOADS)))
    assert made.answer(request).outcome is PrioritizeOutcome.NO_METRICS
    made.close()
