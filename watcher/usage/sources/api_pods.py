"""Running pods of the Kubernetes API, followed by list and watch, and the capacity of all nodes."""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, KubernetesApi
from runtime.kubernetes.metadata import MetadataApi
from runtime.kubernetes.owners import OwnerLookup
from runtime.kubernetes.paths import PODS
from runtime.kubernetes.reflector import Object, Reflector
from runtime.kubernetes.workloads import PARENT_KINDS
from watcher.errors import ProviderUnavailable
from watcher.providers.session import provider_error
from watcher.usage.sources.manifests import ManifestReader, PodIdentity, key_of
from watcher.usage.sources.node_capacity import NodeCapacity
from watcher.usage.sources.pods import Capacity, PodKey, RunningPod, RunningPods

_log = logging.getLogger(__name__)
_RUNNING = "status.phase!=Succeeded,status.phase!=Failed"
_FAILED = "status.phase=Failed"
_MOST_FAILED = 2000
"""Largest number of failed pods to read: a cluster may keep 12,500 evicted pods."""
_STALE_SECONDS = 900.0
_PAUSE_SECONDS = 0.02


class ApiPods:
    """Source of the running pods: lists them once, and follows their changes.

    Args:
        api: client of the API server, which :meth:`close` closes.
        owner_labels: labels that name a workload, the most important first.

    Attributes:
        api: client of the API server.
    """

    def __init__(self, api: KubernetesApi, owner_labels: Sequence[str] = ()) -> None:
        self.api = api
        self._owners = OwnerLookup(MetadataApi(api))
        self._store = _PodStore(ManifestReader(owner_labels, self._owners.parent_of))
        self._reflector = Reflector(api, PODS, self._store, fieldSelector=_RUNNING)
        self._capacity = NodeCapacity(api)
        self._lock = threading.Lock()
        self._is_started = self._is_shared = False

    def share(self, reflector: Reflector) -> None:
        """Use a reflector of pods that another part of the process runs, instead of an own reflector.

        Call this method before the reflector starts. The reflector must follow all unfinished pods.
        """
        reflector.add_observer(self._store)
        self._reflector, self._is_shared = reflector, True

    def running(self, deadline: Deadline) -> RunningPods:
        """Return the running pods; the first call starts to list them, and waits for the list.

        Raises:
            ProviderUnavailable: the list has not arrived, or no change of it for a quarter of an hour.
        """
        with self._lock:
            if not self._is_started:
                self._is_started = True
                self._owners.start()
                if not self._is_shared:
                    self._reflector.start()
        self._wait(deadline)
        if not self._reflector.synced.is_set():
            reason = self._reflector.failure or "the list has not arrived within 120 s"
            raise ProviderUnavailable(f"the pods cannot be read from the Kubernetes API: {reason}")
        if self._reflector.age_seconds > _STALE_SECONDS:
            raise ProviderUnavailable(
                f"the Kubernetes API has not reported changes of pods for {self._reflector.age_seconds:.0f} s: "
                f"{self._reflector.failure}"
            )
        return self._store.running()

    def killed(self, deadline: Deadline) -> Sequence[RunningPod]:
        """Return pods that have failed and still exist, with the kills for lack of memory of their containers.

        The watch of running pods does not have them: it drops a pod before the pod's last state arrives.

        Raises:
            ProviderError: the pods cannot be listed.
        """
        failed = _PodStore(self._store.reader, failed=True)
        try:
            failed.replace(islice(self.api.list_items(PODS, deadline, fieldSelector=_FAILED), _MOST_FAILED))
        except REQUEST_FAILURES as error:
            raise provider_error("Kubernetes", self.api.address or self.api.source, error) from error
        return [pod for pod in failed.running().values() if any(each.was_out_of_memory for each in pod.restarts or ())]

    def capacity(self, deadline: Deadline) -> Capacity:
        """Return the sum of all nodes' allocatable resources.

        Raises:
            ProviderError: the nodes cannot be listed.
        """
        return self._capacity.total(deadline)

    @property
    def problems(self) -> tuple[str, ...]:
        """Reasons why some pods are named without the controllers of their ReplicaSets and Jobs."""
        return tuple(f"the controllers of {kind}s are unknown: {why}" for kind, why in self._owners.failures.items())

    def close(self) -> None:
        """Stop, and abort all requests of the client."""
        if not self._is_shared:
            self._reflector.stop()
        self._owners.close()
        if not self._is_shared:
            self._reflector.join()
        self.api.close()

    def _wait(self, deadline: Deadline) -> None:
        """Wait for the lists, each until its first failure, and at most until the deadline."""
        while deadline.remaining_seconds():
            if self._reflector.failure or (self._reflector.synced.is_set() and self._owners.is_settled):
                return
            time.sleep(_PAUSE_SECONDS)


class _PodStore:
    """Copy of the running pods, as the store or an observer of a reflector.

    If a pod's ReplicaSet or Job is not known yet, its workload is looked up again when the pods are read.

    Args:
        reader: reader of the manifests.
        failed: whether to keep pods that have failed, instead of running ones.
    """

    def __init__(self, reader: ManifestReader, *, failed: bool = False) -> None:
        self.reader, self._failed = reader, failed
        self._pods: dict[PodKey, RunningPod] = {}
        self._provisional: dict[PodKey, PodIdentity] = {}
        self._lock = threading.Lock()

    def running(self) -> RunningPods:
        """Return a copy of the pods, with the workloads that are known now."""
        with self._lock:
            for key, identity in self._provisional.items():
                self._pods[key] = self.reader.renamed(self._pods[key], identity)
            return dict(self._pods)

    def replace(self, objects: Iterable[Object]) -> None:
        deque(self.follow(objects), maxlen=0)

    def follow(self, objects: Iterable[Object]) -> Iterator[Object]:
        listed = _PodStore(self.reader, failed=self._failed)
        for item in objects:
            listed.put(item)
            yield item
        with self._lock:
            self._pods, self._provisional = listed._pods, listed._provisional

    def put(self, changed: Object) -> None:
        try:
            read = self.reader.read(changed, failed=self._failed)
        except ValueError as error:
            _log.warning("the use of a pod is not counted: it cannot be read", extra={"error": str(error)})
            read = None
        if read is None:
            self.drop(changed)
            return
        pod, identity = read
        with self._lock:
            self._pods[identity.key] = pod
            if identity.owner is not None and pod.template.workload.kind in PARENT_KINDS:
                self._provisional[identity.key] = identity
            else:
                self._provisional.pop(identity.key, None)

    def drop(self, deleted: Object) -> None:
        metadata = deleted.get("metadata")
        key = key_of(metadata if isinstance(metadata, dict) else {})
        with self._lock:
            self._pods.pop(key, None)
            self._provisional.pop(key, None)
