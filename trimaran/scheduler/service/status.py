"""State of a running scheduler for ``trimaran doctor``: cluster, load, and nodes shared with other schedulers."""

from collections.abc import Callable, Sequence
from typing import Any

from runtime.controller.leadership import Leadership
from scoring.table.node_table import NodeTable
from trimaran.scheduler.framework.profile import SchedulerProfile
from trimaran.scheduler.plugins.preemption.shared_nodes import node_sharing
from trimaran.scheduler.service.event_queue import ClusterFeed, EventQueue
from trimaran.scheduler.service.load_reader import LoadReader


class LiveStatus:
    """State of the components of a scheduler. Thread-safe.

    Args:
        mode: ``bind`` or ``shadow``.
        scheduler_names: names of the scheduler's profiles.
        event_queue: queue of the scheduling thread.
        feed: the live cluster.
        load: source of the load.
        leads: returns whether this replica decides.
        why_not_ready: returns the reason why the cluster is not known yet; empty if it is.
        leadership: the Lease, if one is needed.
        profiles: the scheduler's profiles.
        ask_seconds: longest time to wait for the scheduling thread.
    """

    def __init__(
        self,
        mode: str,
        scheduler_names: Sequence[str],
        event_queue: EventQueue,
        feed: ClusterFeed,
        load: LoadReader,
        leads: Callable[[], bool],
        why_not_ready: Callable[[], str],
        leadership: Leadership | None = None,
        profiles: Sequence[SchedulerProfile] = (),
        ask_seconds: float = 10.0,
    ) -> None:
        self._mode, self._names, self._event_queue = mode, tuple(scheduler_names), event_queue
        self._feed, self._load, self._leads, self._why_not_ready = feed, load, leads, why_not_ready
        self._leadership = leadership
        self._without_load = [each.scheduler_name for each in profiles if not each.reads_load]
        self._ask_seconds = ask_seconds

    def document(self) -> dict[str, Any]:
        """Return the state as a JSON object."""
        reason, feed = self._why_not_ready(), self._feed
        known = None
        if feed.is_synced:
            try:
                known = self._event_queue.ask(
                    lambda scheduler: (
                        scheduler.state.table.copy(), scheduler.node_backoff.nodes, scheduler.unreadable_quotas,
                    ),
                    self._ask_seconds,
                )  # fmt: skip
            except TimeoutError as error:
                reason = str(error)
        return {
            "ready": not reason,
            "reason": reason,
            "mode": self._mode,
            "leads": self._leads(),
            "lease_holder": None if self._leadership is None else self._leadership.holder,
            "schedulers": list(self._names),
            "cluster": {
                "nodes": 0 if known is None else len(known[0]),
                "age_seconds": round(feed.age_seconds, 1),
                "failures": list(feed.failures),
                "unreadable": dict(feed.unreadable),
                "unknown_nodes": dict(feed.unknown_nodes),
            },
            "load_problem": self._load.why_unknown,
            "without_load": self._without_load,
            "sharing": None if known is None else self._sharing(known[0]),
            "rejecting": [] if known is None else list(known[1]),
            "unreadable_quotas": {} if known is None else dict(known[2]),
        }

    def _sharing(self, nodes: NodeTable) -> dict[str, Any]:
        sharing = node_sharing(nodes.nodes, (placed.pod for _, placed in nodes.placed_pods()), self._names)
        problems = sharing.problems() if sharing.own or sharing.shared else []
        return {"own": len(sharing.own), "shared": len(sharing.shared), "problems": problems}
