"""Log line and Event about the expected benefit, written when the extender begins to send scores."""

import logging
import threading
from collections.abc import Callable

from client import ClientError, Collector
from trimaran.cluster.view import ClusterView
from trimaran.extender.rollout import Rollout
from trimaran.planning.benefit import BenefitVerdict, PlacementBenefit, placement_benefit

_POLL_SECONDS = 5.0
_REMEDY = "see trimaran assess; extender.mode = shadow switches it off"
_log = logging.getLogger(__name__)


class BenefitNotice:
    """Writer of one notice each time that the mode becomes ``active``, in a thread of its own.

    A field trial has no notice, because it measures the benefit.

    Args:
        view: the live cluster.
        metrics: source of the metrics.
        rollout: returns the current rollout.
        announce: writes an Event; arguments are the reason, the message, and whether it is a warning.
    """

    def __init__(
        self,
        view: ClusterView,
        metrics: Collector,
        rollout: Callable[[], Rollout],
        announce: Callable[[str, str, bool], None],
    ) -> None:
        self._view, self._metrics = view, metrics
        self._rollout, self._announce = rollout, announce
        self._is_given = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="benefit", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        self._stop.set()

    def check(self) -> PlacementBenefit | None:
        """Write the notice once scores are sent and the cluster and its load are known; return the expected benefit."""
        if self._rollout().percent == 0:
            self._is_given = False
            return None
        if self._is_given or not self._view.is_synced:
            return None
        try:
            snapshot = self._metrics.snapshot()
        except ClientError:
            return None
        with self._view.reading() as table:
            nodes = table.copy()
        benefit, self._is_given = placement_benefit(nodes, snapshot), True
        is_warning = benefit.verdict is BenefitVerdict.HARM
        message = f"Load-aware placement acts; expected here: {benefit.verdict}: {benefit.reason}"
        _log.log(
            logging.WARNING if is_warning else logging.INFO, message, extra={"remedy": _REMEDY} if is_warning else {}
        )
        self._announce("ExpectedBenefit", f"{message} ({_REMEDY})" if is_warning else message, is_warning)
        return benefit

    def _run(self) -> None:
        while not self._stop.wait(_POLL_SECONDS):
            try:
                self.check()
            except Exception:  # noqa: BLE001  a notice must not end the extender's other work
                _log.exception("the expected benefit could not be computed")
                self._is_given = True
