"""Removal of everything that the node writer has written: ``trimaran nodes --clear``.

Clearing holds the Lease of the writer, so that no replica writes meanwhile. It keeps the Lease for a minute after a
success, because replicas that are being stopped must not write again.
"""

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass

import requests

from runtime.errors import TrimaranError
from runtime.http.failures import Failure, describe
from runtime.http.gather import Deadline
from runtime.kubernetes import object_requests
from runtime.kubernetes.api import REQUEST_FAILURES, KubernetesApi
from runtime.kubernetes.events import EventWriter
from runtime.kubernetes.leader_election import Lease
from runtime.kubernetes.paths import NODES, list_path, object_path
from runtime.kubernetes.rbac import needed_rule
from trimaran.soft_taints.node_state import NodeState, Object, node_reference
from trimaran.soft_taints.settings import NodesSettings
from trimaran.soft_taints.writer import COMPONENT, WRITE_SECONDS

_IDENTITY = "trimaran-nodes-clear"  # the same for every run, so that a second run can take the Lease of the first
_MIN_LEASE_SECONDS = 60.0
_RENEW_SECONDS = 20.0
_WAIT_LEASES = 3  # in durations of the Lease: one while a replica stops, one until a killed replica's Lease expires
_POLL_SECONDS = 0.5
_LIST_SECONDS = 120.0
_RBAC = " cannot patch resource "  # in the message of a 403 by RBAC
_PASSES = 3  # over all nodes, as the API server refuses writes to nodes that have changed since they were read
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class ClearedNodes:
    """Numbers of nodes that :func:`clear` has read and changed.

    Attributes:
        read: number of all nodes.
        taints: nodes whose taints were removed.
        annotations: nodes whose load annotations were removed.
    """

    read: int = 0
    taints: int = 0
    annotations: int = 0

    def __str__(self) -> str:
        """Return the numbers as a sentence."""
        return f"of {self.read} nodes, {self.taints} lost the taint and {self.annotations} lost their load annotations"


def clear(settings: NodesSettings, *, force: bool = False) -> ClearedNodes:
    """Remove the taints and the annotations of ``trimaran nodes`` from all nodes; return the numbers of nodes.

    Args:
        settings: settings of ``trimaran nodes``; the taints' keys and the Lease must be those of the writer.
        force: whether to write without the Lease, even while a replica holds it.

    Raises:
        SettingsError: the settings give no access to the Kubernetes API.
        TrimaranError: a replica of the writer runs, the nodes cannot be read, or a node could not be written.
    """
    section, api = settings.nodes, settings.cluster.open_api()
    seconds = max(section.lease_seconds, _MIN_LEASE_SECONDS)
    lease = Lease(api, settings.cluster.lease_namespace, section.lease_name, _IDENTITY, seconds)
    try:
        is_taken = not force and _take(api, lease, settings)
        keys = section.taint_key, section.warm_taint_key
        return _NodeCleaner(api, keys, lease if is_taken else None).run()
    except TrimaranError:
        lease.release()
        raise
    finally:
        api.close()


def _take(api: KubernetesApi, lease: Lease, settings: NodesSettings) -> bool:
    """Wait for the Lease; return False if its namespace does not exist, so that no replica can run.

    Raises:
        TrimaranError: another process keeps the Lease, or it cannot be read or written.
    """
    section, namespace = settings.nodes, settings.cluster.lease_namespace
    name = f"{namespace}/{section.lease_name}"
    until = time.monotonic() + _WAIT_LEASES * section.lease_seconds
    known_holder = ""
    while True:
        failure = None
        try:
            if lease.acquire():
                return True
        except REQUEST_FAILURES as error:
            failure = describe(error)
            if failure.status == requests.codes.not_found:
                _log.info("the namespace of the Lease does not exist", extra={"lease": name})
                return False
        if lease.holder != known_holder:
            known_holder = lease.holder
            _log.info("waiting for the replica that writes to stop", extra={"lease": name, "holder": known_holder})
        if time.monotonic() >= until or (failure is not None and not _may_pass(failure)):
            break
        time.sleep(_POLL_SECONDS)
    if failure is not None:
        if failure.status != requests.codes.forbidden:
            raise _api_error(api, f"the Lease {name} cannot be read or written", failure)
        rule = needed_rule(list_path("Lease", namespace), "get", "create", "update")
        raise TrimaranError(f"no access to the Lease {name}: {failure.reason}; {rule}; if no replica runs, use --force")
    raise TrimaranError(
        f"the Lease {name} is held by {lease.holder}, which would mark the nodes again. Stop the replicas, as with "
        f"kubectl -n {namespace} scale deployment {section.lease_name} --replicas=0; or use --force"
    )


def _may_pass(failure: Failure) -> bool:
    """Return whether the next request may succeed: the API server answers, but is overloaded or starting."""
    return failure.status == requests.codes.too_many_requests or failure.status >= 500


def _api_error(api: KubernetesApi, problem: str, failure: Failure) -> TrimaranError:
    """Return an error that names the API server, and the source of its address and credentials."""
    server = f"{api.address} of {api.source}" if api.address else api.source
    return TrimaranError(f"{problem}: {failure.reason} (API server {server}; see cluster.kube_config)")


class _NodeCleaner:
    """Removal of the taints and the annotations from all nodes, with an Event for each node that had a taint.

    Args:
        api: Kubernetes API.
        taint_keys: keys of the taints.
        lease: Lease to renew while nodes are written; None to write without a Lease.
    """

    def __init__(self, api: KubernetesApi, taint_keys: Iterable[str], lease: Lease | None) -> None:
        self._api, self._keys, self._lease = api, tuple(taint_keys), lease
        self._renew_at = time.monotonic() + _RENEW_SECONDS
        self._events = EventWriter(api, COMPONENT)
        self._cleared = ClearedNodes()

    def run(self) -> ClearedNodes:
        """Clear all nodes; return the numbers of changed nodes.

        Raises:
            TrimaranError: a permission is missing, the Lease is lost, or nodes could not be written.
        """
        failed: dict[str, str] = {}
        for _ in range(_PASSES):
            failed = {}
            states = self._read()
            self._cleared.read = len(states)
            for name, state in states.items():
                unwanted = dict.fromkeys(self._keys, False)
                patch = state.patch(unwanted, annotations=dict.fromkeys(state.annotations))
                if patch and (reason := self._write(name, state, patch)):
                    failed[name] = reason
            if not failed:
                return self._cleared
        for name, reason in failed.items():
            _log.warning("node could not be cleared", extra={"node": name, "error": reason})
        raise TrimaranError(
            f"{self._cleared}; {len(failed)} could not be written, such as {name}: {reason}. Run the command again"
        )

    def _read(self) -> dict[str, NodeState]:
        try:
            nodes = self._api.list_items(NODES, Deadline.after(_LIST_SECONDS))
            return {str(each["metadata"]["name"]): NodeState.from_k8s(each) for each in nodes}
        except REQUEST_FAILURES as error:
            failure = describe(error)
            if failure.status != requests.codes.forbidden:
                raise _api_error(self._api, "the nodes cannot be read", failure) from error
            rule = needed_rule(NODES, "list", "patch")
            raise TrimaranError(f"the nodes cannot be read: {failure.reason}; {rule}") from error

    def _write(self, name: str, state: NodeState, patch: Object) -> str:
        """Patch a node; return the reason if it failed."""
        self._keep_lease()
        try:
            object_requests.patch(self._api, object_path("Node", name), patch, Deadline.after(WRITE_SECONDS))
        except REQUEST_FAILURES as error:
            failure = describe(error)
            # Admission plugins also answer 403, perhaps for this node only: go on with the other nodes.
            if failure.status == requests.codes.forbidden and _RBAC in failure.reason:
                raise TrimaranError(f"{self._cleared}; {failure.reason}; {needed_rule(NODES, 'patch')}") from error
            return failure.reason
        self._cleared.annotations += bool(state.annotations)
        if "spec" in patch:
            self._cleared.taints += 1
            _log.info("taint removed", extra={"node": name, "why": "trimaran nodes --clear"})
            keys = ", ".join(key for key in self._keys if state.is_tainted(key))
            message = f"Taint {keys} removed: trimaran nodes --clear"
            subject = node_reference(name, state.uid)
            self._events.write(subject, "NodeNotHot", message, Deadline.after(WRITE_SECONDS))
        return ""

    def _keep_lease(self) -> None:
        if self._lease is not None and time.monotonic() >= self._renew_at:
            self._renew_at = time.monotonic() + _RENEW_SECONDS
            if not self._lease.renew():
                raise TrimaranError(f"{self._cleared}; then another process took the Lease. Run the command again")
