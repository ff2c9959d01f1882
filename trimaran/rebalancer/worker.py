"""Worker process of ``trimaran rebalance``: watches, leader election by a Lease, and the controller."""

import time
from collections.abc import Callable, Sequence

from runtime.controller.leader_loop import LeaderElectedLoop
from runtime.controller.leadership import Leadership
from runtime.controller.own_lease import open_lease
from runtime.controller.service import ControllerWorker
from runtime.kubernetes.api import KubernetesApi
from runtime.kubernetes.events import EventWriter
from runtime.kubernetes.leader_election import LEASE_SECONDS, uptime
from runtime.server.access import AccessCheck
from runtime.server.fast_path import FastPath
from trimaran.planning.move_triggers import Trigger
from trimaran.rebalancer.app import create_app
from trimaran.rebalancer.cluster_watch import ClusterWatch
from trimaran.rebalancer.controller import Rebalancer, SearchSchedule
from trimaran.rebalancer.evictions import Evictor
from trimaran.rebalancer.ledger_store import LedgerStore
from trimaran.rebalancer.look import ClusterLook
from trimaran.rebalancer.measured_use import UseReader
from trimaran.rebalancer.mover import PodMover
from trimaran.rebalancer.reports import COMPONENT, MoveReporter, RebalancerCounts
from trimaran.rebalancer.rules import CYCLE_SECONDS
from trimaran.rebalancer.settings import RebalanceSettings
from trimaran.rebalancer.status import rights_document, status_document

_MAX_WRITE_SECONDS = 10.0


class RebalancerWorker(ControllerWorker):
    """Worker process that runs the watches, the leader election and the controller in threads.

    Args:
        settings: settings of ``trimaran rebalance``.
        apis: clients of the Kubernetes API: for nodes and pods, for the other watches, and for writes; closed with the
            worker.
        access: access check of the HTTP routes.
        lease_seconds: duration of the Lease after each renewal.
        cycle_seconds: time between two checks of triggers and of evicted pods.
    """

    def __init__(
        self,
        settings: RebalanceSettings,
        apis: Sequence[KubernetesApi],
        access: AccessCheck,
        *,
        lease_seconds: float = LEASE_SECONDS,
        cycle_seconds: float = CYCLE_SECONDS,
    ) -> None:
        super().__init__(apis, access)
        self._settings, self._lease_seconds, self._cycle_seconds = settings, lease_seconds, cycle_seconds

    def start(self) -> FastPath:
        """Start the threads, and return the WSGI application without waiting for the cluster or the use of pods."""
        section, api = self._settings.rebalance, self._apis[2]
        acts, rules, counts = section.mode == "act", section.rules(), RebalancerCounts()
        source = self._settings.cluster.open_watcher(self._settings)
        watch = ClusterWatch(self._apis[0], self._apis[1])
        namespace, name = self._settings.cluster.lease_namespace, section.lease_name
        lease = open_lease(api, namespace, name, self._lease_seconds)
        store = LedgerStore(api, namespace, name)
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": namespace, "name": name}
        reporter = MoveReporter(EventWriter(api, COMPONENT) if acts else None, reference)
        # A term is two thirds of the Lease's duration: a write that begins at its end is over before the next begins.
        evictor = Evictor(api, min(_MAX_WRITE_SECONDS, self._lease_seconds / 3))

        def mover(look: Callable[[], ClusterLook], leads: Callable[[], bool]) -> PodMover:
            return PodMover(evictor, store, reporter, counts, rules, look, leads, time.time)

        schedule = SearchSchedule(acts, tuple(map(Trigger, section.triggers)), seconds=section.search_seconds)
        use = UseReader(source, rules.max_age, time.time)
        rebalancer = Rebalancer(
            watch, use, mover, store, reporter, counts, rules, schedule, lambda: lease.term, time.time, uptime
        )
        leadership = Leadership(lease, self._lease_seconds) if acts else None
        loop = LeaderElectedLoop(leadership, rebalancer.run_cycle, self._cycle_seconds)
        watch.start()
        loop.start()
        for close in (source.close, watch.close, loop.stop):  # the exit stack calls them in reverse order
            self._closing.callback(close)

        def leads() -> bool:
            return lease.is_held or not acts

        def why_not_ready() -> str:
            return watch.why_unknown or loop.failure

        def status() -> dict[str, object]:
            return {
                **status_document(rebalancer, section.mode, leads=leads()),
                "lease_holder": lease.holder,
                "lease_problem": lease.problem if acts else "",
            }

        def rights() -> dict[str, object]:
            return rights_document(api, section.mode, section.namespaces)

        return create_app(rebalancer, status, rights, loop.is_alive, why_not_ready, leads, self._access)
