"""Notice of the expected benefit when the extender begins to act."""

import logging

import pytest
from support.extending import SettableMetrics, StaticView

from trimaran.extender.benefit_notice import BenefitNotice
from trimaran.extender.rollout import Rollout

NAMES = ("node-0", "node-1")


def test_each_switch_to_active_has_one_notice(caplog: pytest.LogCaptureFixture) -> None:
    """A notice is written once the load is known, once for each switch to active or canary, not in shadow or trial."""
    view, metrics = StaticView(*NAMES), SettableMetrics(None)
    rollout, events = Rollout("shadow"), []
    notice = BenefitNotice(view, metrics, lambda: rollout, lambda *event: events.append(event))
    caplog.set_level(logging.INFO)

    def noticed() -> bool:
        return notice.check() is not None

    for rollout in (Rollout("shadow"), Rollout("trial"), Rollout("active")):  # noqa: B007  read by the notice
        assert not noticed()  # nothing is known of the load
    metrics.current = SettableMetrics({"node-0": 10.0, "node-1": 20.0}).current
    for rollout in (Rollout("shadow"), Rollout("trial")):  # noqa: B007
        assert not noticed()
    for rollout in (Rollout("active", 10), Rollout("shadow"), Rollout("active")):
        assert noticed() == (rollout.mode == "active")
        assert not noticed()  # once for each switch
    assert [(reason, is_warning) for reason, _, is_warning in events] == 2 * [("ExpectedBenefit", False)]
    assert "expected here: none" in caplog.text
