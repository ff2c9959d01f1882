"""Writer of the statuses of PodGroups and of quotas, which are computed from their pods."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import requests

from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, Sender
from runtime.kubernetes.k8s_fields import get
from runtime.kubernetes.object_requests import patch
from runtime.kubernetes.paths import in_namespace
from runtime.kubernetes.rbac import needed_rule
from runtime.kubernetes.reflector import Object
from runtime.outage_log import OutageLog
from runtime.threads import TurnGuard, join_all

_GATHER_SECONDS = 0.2
_RETRY_SECONDS = 10.0
_WRITE_SECONDS = 10.0
_JOIN_SECONDS = 3.0
_GONE = {requests.codes.not_found, requests.codes.conflict}
_log = logging.getLogger(__name__)

Key = tuple[str, str]
"""Namespace and name that objects share with their pods; the name is "" if all pods of a namespace count."""


def _unchanged(pod: Object) -> Object:
    return pod


@dataclass(frozen=True)
class StatusRule:
    """Rule for the statuses of the objects of one kind.

    Attributes:
        path: path of the list of the objects, of all namespaces.
        key_of_object: returns the key of an object.
        key_of_pod: returns the key of the objects that a pod counts for; None if there are none.
        next_status: returns the status for an object and the stored data of its pods.
        selectors: selectors of the pods that may count, by the API's names.
        keep: returns the data of a pod to store.
    """

    path: str
    key_of_object: Callable[[Object], Key]
    key_of_pod: Callable[[Object], Key | None]
    next_status: Callable[[Object, list[Any]], Mapping[str, Any]]
    selectors: Mapping[str, str]
    keep: Callable[[Object], Any] = _unchanged

    @property
    def plural(self) -> str:
        """Plural name of the kind, as in paths of the API."""
        return self.path.rpartition("/")[2]


class ObjectStatusWriter:
    """Thread that writes the statuses of the objects of a kind.

    Args:
        rule: rule for the statuses of the kind.
        connection: connection to the API server.
        may_write: returns whether this process leads; called before every request.

    Attributes:
        objects: reflector store of the objects.
        pods: reflector store of the pods.
    """

    def __init__(self, rule: StatusRule, connection: Sender, may_write: Callable[[], bool]) -> None:
        self._rule, self._connection, self._may_write = rule, connection, may_write
        self._changed = threading.Condition()
        self._due: dict[Key, None] = {}
        self._stop = threading.Event()
        self._outage = OutageLog(_log, f"{rule.plural} cannot be updated; retrying", f"{rule.plural} are updated again")
        self._turns = TurnGuard(_log, f"no status for {rule.plural}", f"statuses of {rule.plural} are computed again")
        self._thread = threading.Thread(target=self._run, name=f"{rule.plural}-status", daemon=True)
        self.objects = _KeyedStore(rule.key_of_object, self._note)
        self.pods = _KeyedStore(rule.key_of_pod, self._note, rule.keep)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> bool:
        """Stop after the current request; return whether the thread has ended in time."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        return join_all([self._thread], _JOIN_SECONDS)

    def is_alive(self) -> bool:
        """Return whether the thread runs."""
        return self._thread.is_alive()

    def write_due(self) -> bool:
        """Write the statuses that have changed; return whether all were written. The thread calls it."""
        if not (self.objects.is_known and self.pods.is_known):
            return True  # each full list makes every object due again
        with self._changed:
            due, self._due = list(self._due), {}
        failed = [key for key in due if not self._write(key)]
        self._note(failed)
        return not failed

    def _note(self, keys: Iterable[Key]) -> None:
        with self._changed:
            self._due.update(dict.fromkeys(keys))
            self._changed.notify()

    def _write(self, key: Key) -> bool:
        objects = self.objects.of(key)
        # A failure does not stop the other objects. After an unexpected one the object is tried again when it changes.
        results = [self._turns.run(partial(self._write_one, each, key), otherwise=True) for each in objects]
        return all(results)

    def _write_one(self, document: Object, key: Key) -> bool:
        """Write the status of an object if it changes; return whether no further try is needed."""
        metadata, before = get(document, "metadata"), get(document, "status") or {}
        after = self._rule.next_status(document, self.pods.of(key))
        if after == before:
            return True
        if not self._may_write():
            return False
        path = f"{in_namespace(self._rule.path, get(metadata, 'namespace'))}/{get(metadata, 'name')}/status"
        body = {"metadata": {"uid": get(metadata, "uid")}, "status": after}
        try:
            patch(self._connection, path, body, Deadline.after(_WRITE_SECONDS))
        except REQUEST_FAILURES as error:
            failure = describe(error)
            if failure.status in _GONE:
                return True
            reason = failure.reason
            if failure.status == requests.codes.forbidden:
                reason += f"; {needed_rule(self._rule.path + '/status', 'patch')}"
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
    """Reflector store of objects by key. Another thread may read it.

    Args:
        key_of: returns the key of an object; None for an object without one.
        note: called with the keys whose objects changed.
        keep: returns the data of an object to store.

    Attributes:
        is_known: whether the first full list has arrived.
    """

    def __init__(
        self,
        key_of: Callable[[Object], Key | None],
        note: Callable[[Iterable[Key]], None],
        keep: Callable[[Object], Any] = _unchanged,
    ) -> None:
        self._key_of, self._note, self._keep = key_of, note, keep
        self._lock = threading.Lock()
        self._objects: dict[Key, dict[str, Any]] = {}
        self.is_known = False

    def of(self, key: Key) -> list[Any]:
        """Return the stored data of the objects with a key."""
        with self._lock:
            return list(self._objects.get(key, {}).values())

    def replace(self, objects: Iterable[Object]) -> None:
        """Replace all objects with a full list."""
        listed: dict[Key, dict[str, Any]] = {}
        for each in objects:
            key = self._key_of(each)
            if key is not None:
                listed.setdefault(key, {})[_uid(each)] = self._keep(each)
        with self._lock:
            before, self._objects, self.is_known = self._objects, listed, True
        self._note([*before, *listed])

    def put(self, changed: Object) -> None:
        """Add or update an object."""
        key = self._key_of(changed)
        if key is not None:
            with self._lock:
                self._objects.setdefault(key, {})[_uid(changed)] = self._keep(changed)
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
