"""Status of PodGroups of ``scheduling.x-k8s.io``, as the controller of scheduler-plugins writes it.

The phase follows from the phases of the gang's pods: Pending, Scheduling once enough pods exist, Running, and at last
Finished or Failed. Pods count only in the namespace of their PodGroup; upstream lists them in all namespaces.
Source: kubernetes-sigs/scheduler-plugins v0.33.5, pkg/controllers/podgroup_controller.go.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import requests

from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, Sender
from runtime.kubernetes.gangs import POD_GROUP_LABEL
from runtime.kubernetes.k8s_fields import get
from runtime.kubernetes.rbac import needed_rule
from runtime.kubernetes.reflector import Object
from runtime.outage_log import OutageLog
from runtime.threads import join_all

POD_GROUPS: Final = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"

_MOST_STEPS = 4  # of the phase: none, Pending, Scheduling, and one by the counts
_GATHER_SECONDS = 0.2
_RETRY_SECONDS = 10.0
_WRITE_SECONDS = 10.0
_JOIN_SECONDS = 3.0
_GONE = {requests.codes.not_found, requests.codes.conflict}
_log = logging.getLogger(__name__)

_Key = tuple[str, str]  # namespace and name of a PodGroup


def next_status(least: int, status: Mapping[str, Any], pods: Iterable[Object]) -> Mapping[str, Any]:
    """Return the status of a PodGroup.

    Args:
        least: ``spec.minMember``.
        status: present status.
        pods: v1 Pods of the gang, also those that have ended.
    """
    listed = list(pods)
    for _ in range(_MOST_STEPS):
        following = _step(least, status, listed)
        if following == status:
            break
        status = following
    return status


def _step(least: int, status: Mapping[str, Any], pods: list[Object]) -> Mapping[str, Any]:
    phase = status.get("phase") or ""
    if phase in {"Finished", "Failed"}:
        return status
    if not phase:
        return {**status, "phase": "Pending"}
    if phase == "Pending":
        if len(pods) < least:
            return status
        return {**status, "phase": "Scheduling", **_occupied_by(pods[0])}
    phases = Counter(get(get(pod, "status"), "phase") for pod in pods)
    running, succeeded, failed = (phases[each] for each in ("Running", "Succeeded", "Failed"))
    counts = {"running": running, "succeeded": succeeded, "failed": failed}
    if len(pods) < least:
        phase = "Pending"
    elif succeeded >= least:
        phase = "Finished"
    elif failed and failed + running + succeeded >= least:
        phase = "Failed"
    else:
        phase = "Running" if succeeded + running >= least else "Scheduling"
    return {**status, **counts, "phase": phase}


def _occupied_by(pod: Object) -> Mapping[str, str]:
    metadata = get(pod, "metadata")
    namespace = get(metadata, "namespace")
    owners = sorted(f"{namespace}/{get(each, 'name')}" for each in get(metadata, "ownerReferences") or ())
    return {"occupiedBy": ",".join(owners)} if owners else {}


class PodGroupStatusWriter:
    """Thread that writes the statuses of PodGroups.

    Args:
        connection: connection to the API server.
        may_write: returns whether this process leads; asked before every request.

    Attributes:
        groups: reflector store of the PodGroups.
        pods: reflector store of the pods with the label of a PodGroup, in any phase.
    """

    def __init__(self, connection: Sender, may_write: Callable[[], bool]) -> None:
        self._connection, self._may_write = connection, may_write
        self._changed = threading.Condition()
        self._due: dict[_Key, None] = {}
        self._stop = threading.Event()
        self._outage = OutageLog(_log, "PodGroups cannot be updated; retrying", "PodGroups are updated again")
        self._thread = threading.Thread(target=self._run, name="pod-group-status", daemon=True)
        self.groups = _KeyedStore(_group_key, self._note)
        self.pods = _KeyedStore(_pod_key, self._note)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> bool:
        """Stop after the current request; return whether it has ended in time."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        return join_all([self._thread], _JOIN_SECONDS)

    def is_alive(self) -> bool:
        """Return whether the thread runs."""
        return self._thread.is_alive()

    def write_due(self) -> bool:
        """Write the statuses that have changed; return whether all were written. The thread calls it."""
        if not (self.groups.is_known and self.pods.is_known):
            return True  # the first full lists note every group once more
        with self._changed:
            due, self._due = list(self._due), {}
        failed = [key for key in due if not self._write(key)]
        self._note(failed)
        return not failed

    def _note(self, keys: Iterable[_Key]) -> None:
        with self._changed:
            self._due.update(dict.fromkeys(keys))
            self._changed.notify()

    def _write(self, key: _Key) -> bool:
        group = next(iter(self.groups.of(key)), None)
        if group is None:
            return True
        least, before = get(get(group, "spec"), "minMember"), get(group, "status") or {}
        if isinstance(least, bool) or not isinstance(least, int):
            return True  # its pods are held, with the reason
        after = next_status(least, before, self.pods.of(key))
        if after == before:
            return True
        if not self._may_write():
            return False
        path = f"{POD_GROUPS.removesuffix('podgroups')}namespaces/{key[0]}/podgroups/{key[1]}/status"
        body = {"metadata": {"uid": get(get(group, "metadata"), "uid")}, "status": after}
        try:
            self._connection.send("PATCH", path, Deadline.after(_WRITE_SECONDS), body, "application/merge-patch+json")
        except REQUEST_FAILURES as error:
            failure = describe(error)
            if failure.status in _GONE:
                return True
            reason = failure.reason
            if failure.status == requests.codes.forbidden:
                reason += f"; {needed_rule(POD_GROUPS + '/status', 'patch')}"
            self._outage.failed(reason, path=path)
            return False
        self._outage.worked()
        return True

    def _run(self) -> None:
        while not self._stop.wait(_GATHER_SECONDS):
            with self._changed:
                self._changed.wait_for(lambda: self._due or self._stop.is_set())
            if not self._stop.is_set() and not self.write_due():
                self._stop.wait(_RETRY_SECONDS)


class _KeyedStore:
    """Reflector store of objects by PodGroup. Another thread may read it.

    Args:
        key_of: returns the PodGroup of an object; None for an object without one.
        note: takes the PodGroups whose objects changed.

    Attributes:
        is_known: whether the first full list has arrived.
    """

    def __init__(self, key_of: Callable[[Object], _Key | None], note: Callable[[Iterable[_Key]], None]) -> None:
        self._key_of, self._note = key_of, note
        self._lock = threading.Lock()
        self._objects: dict[_Key, dict[str, Object]] = {}
        self.is_known = False

    def of(self, key: _Key) -> list[Object]:
        """Return the objects of a PodGroup."""
        with self._lock:
            return list(self._objects.get(key, {}).values())

    def replace(self, objects: Iterable[Object]) -> None:
        """Replace all objects with a full list."""
        listed: dict[_Key, dict[str, Object]] = {}
        for each in objects:
            key = self._key_of(each)
            if key is not None:
                listed.setdefault(key, {})[_uid(each)] = each
        with self._lock:
            before, self._objects, self.is_known = self._objects, listed, True
        self._note([*before, *listed])

    def put(self, changed: Object) -> None:
        """Add or update an object."""
        key = self._key_of(changed)
        if key is not None:
            with self._lock:
                self._objects.setdefault(key, {})[_uid(changed)] = changed
            self._note((key,))

    def drop(self, deleted: Object) -> None:
        """Remove an object."""
        key = self._key_of(deleted)
        if key is not None:
            with self._lock:
                self._objects.get(key, {}).pop(_uid(deleted), None)
            self._note((key,))


def _uid(each: Object) -> str:
    return str(get(get(each, "metadata"), "uid"))


def _group_key(group: Object) -> _Key | None:
    metadata = get(group, "metadata")
    return str(get(metadata, "namespace")), str(get(metadata, "name"))


def _pod_key(pod: Object) -> _Key | None:
    metadata = get(pod, "metadata")
    name = (get(metadata, "labels") or {}).get(POD_GROUP_LABEL)
    return (str(get(metadata, "namespace")), str(name)) if name else None
