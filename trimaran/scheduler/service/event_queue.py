"""Queue of the cluster's changes: the reflectors' threads decode them, the scheduling thread applies them in order."""

import queue
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final, TypeVar

from runtime.kubernetes.objects import Node, Pod
from runtime.kubernetes.optional_lists import OptionalLists
from runtime.kubernetes.paths import LISTS, NODES, OPTIONAL_LISTS, PODS
from runtime.kubernetes.reflector import ListWatch, Object, Reflector, ReflectorStore
from runtime.kubernetes.reflector_group import ReflectorGroup
from trimaran.cluster.object_reader import RUNNING, ObjectReader, metadata_of, pod_reader
from trimaran.cluster.unknown_requests import UnknownRequests
from trimaran.scheduler.framework.scheduler import Scheduler

_FAILED: Final = "status.phase=Failed"

Answer = TypeVar("Answer")
Change = Callable[[Scheduler, float], None]
"""Change of the scheduler's state; the second argument is the time, seconds."""


class EventQueue:
    """Queue of changes to objects, from the threads of the reflectors to that of the scheduler. Thread-safe."""

    def __init__(self) -> None:
        self._changes: queue.SimpleQueue[Change] = queue.SimpleQueue()

    def __len__(self) -> int:
        return self._changes.qsize()

    def post(self, change: Change) -> None:
        """Add a change, and wake the scheduling thread."""
        self._changes.put(change)

    def ask(self, question: Callable[[Scheduler], Answer], seconds: float) -> Answer:
        """Call a function in the scheduling thread; return its result.

        Args:
            question: function that reads the scheduler, and must return soon.
            seconds: longest time to wait for the result.

        Raises:
            TimeoutError: there was no result in time.
        """
        answer: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self.post(lambda scheduler, _now: answer.put(question(scheduler)))
        try:
            return answer.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError("the scheduling thread did not answer in time") from None

    def take(self, seconds: float = 0.0) -> Change | None:
        """Remove and return the oldest change; None if no change arrives within ``seconds``."""
        try:
            return self._changes.get(timeout=seconds) if seconds > 0 else self._changes.get_nowait()
        except queue.Empty:
            return None


class NodeFeed:
    """Reflector store that posts changes of nodes.

    Args:
        event_queue: receives the changes.
        kept_annotations: names of the annotations of nodes that plugins read.
    """

    def __init__(self, event_queue: EventQueue, kept_annotations: Collection[str] = ()) -> None:
        self._event_queue = event_queue
        self.reader = ObjectReader(partial(Node.from_k8s, kept_annotations=kept_annotations))

    def replace(self, objects: Iterable[Object]) -> None:
        """Post a full list."""
        self.reader.forget_all()
        nodes = [node for each in objects if (node := self.reader.read(each)) is not None]
        self._event_queue.post(lambda scheduler, now: scheduler.replace_nodes(nodes, now))

    def put(self, changed: Object) -> None:
        """Post a new or changed node; an unreadable node is removed, so that no pod is placed on it."""
        node = self.reader.read(changed)
        if node is None:
            self._drop(changed)
        else:
            self._event_queue.post(lambda scheduler, now: scheduler.put_node(node, now))

    def drop(self, deleted: Object) -> None:
        """Post a deletion."""
        self.reader.forget(deleted)
        self._drop(deleted)

    def _drop(self, gone: Object) -> None:
        name = str(metadata_of(gone).get("name"))
        self._event_queue.post(lambda scheduler, _: scheduler.drop_node(name))


class PodFeed:
    """Reflector store that posts changes of pods.

    Args:
        event_queue: receives the changes.
        on_change: called in the scheduling thread with each pod before it is changed; None for deleted pods.
        kept_annotations: names of the annotations of pods that plugins read.
        on_refusal: called in the scheduling thread with each pending pod that cannot be read, and the reason.

    Attributes:
        unknown: nodes that get no pods, because the requests of one of their pods are not known.
    """

    def __init__(
        self,
        event_queue: EventQueue,
        on_change: Callable[[str, Pod | None], None] = lambda _uid, _pod: None,
        kept_annotations: Collection[str] = (),
        on_refusal: Callable[[Pod, str], None] = lambda _pod, _why: None,
    ) -> None:
        self._event_queue, self._on_change, self._on_refusal = event_queue, on_change, on_refusal
        self.reader = pod_reader(kept_annotations=kept_annotations, on_unreadable=self._refuse)
        self.unknown = UnknownRequests(
            lambda name, is_unknown: event_queue.post(
                lambda scheduler, now: scheduler.mark_unknown(name, now, is_unknown=is_unknown)
            )
        )

    def replace(self, objects: Iterable[Object]) -> None:
        """Post a full list."""
        self.reader.forget_all()
        pods: list[Pod] = []
        listed: set[str] = set()
        for each in objects:
            listed.add(_uid(each))
            pod = self._read(each)
            if pod is not None:
                pods.append(pod)
        self.unknown.keep_only(listed)

        def change(scheduler: Scheduler, now: float) -> None:
            for pod in pods:
                self._on_change(pod.uid, pod)
            scheduler.replace_pods(pods, now)

        self._event_queue.post(change)

    def put(self, changed: Object) -> None:
        """Post a new or changed pod. If it is unreadable, its earlier version stays, and its node gets no pods."""
        pod = self._read(changed)
        if pod is None:
            return

        def change(scheduler: Scheduler, now: float) -> None:
            self._on_change(pod.uid, pod)
            scheduler.put_pod(pod, now)

        self._event_queue.post(change)

    def drop(self, deleted: Object) -> None:
        """Post a deletion, or the end of a pod."""
        self.reader.forget(deleted)
        uid, left_at = _uid(deleted), time.time()
        self.unknown.forget(uid)

        def change(scheduler: Scheduler, now: float) -> None:
            self._on_change(uid, None)
            scheduler.drop_pod(uid, now, left_at)

        self._event_queue.post(change)

    def _read(self, each: Object) -> Pod | None:
        pod = self.reader.read(each)
        self.unknown.observe(each, pod)
        return pod

    def _refuse(self, each: Object, why: str) -> None:
        metadata, spec = metadata_of(each), each.get("spec")
        if isinstance(spec, dict) and metadata.get("name") and not spec.get("nodeName"):
            pod = Pod(
                name=str(metadata["name"]), namespace=str(metadata.get("namespace")), uid=_uid(each),
                scheduler_name=str(spec.get("schedulerName")),
            )  # fmt: skip
            self._event_queue.post(lambda _scheduler, _now: self._on_refusal(pod, why))


class KindEventHandler:
    """Reflector store that posts changes of objects of one kind, other than nodes and pods.

    Args:
        kind: kind of the objects.
        event_queue: receives the changes.
    """

    def __init__(self, kind: str, event_queue: EventQueue) -> None:
        self._kind, self._event_queue = kind, event_queue
        self._known: dict[str, Object] = {}  # only the identity of each object, by UID

    def replace(self, objects: Iterable[Object]) -> None:
        """Post a full list as single changes."""
        listed = {str(metadata_of(each).get("uid")): each for each in objects}
        for uid in [uid for uid in self._known if uid not in listed]:
            self.drop(self._known[uid])
        for each in listed.values():
            self.put(each)

    def put(self, changed: Object) -> None:
        """Post a new or changed object."""
        metadata = metadata_of(changed)
        identity = {key: metadata.get(key) for key in ("name", "namespace", "uid")}
        self._known[str(metadata.get("uid"))] = {"metadata": identity}
        self._event_queue.post(lambda scheduler, now: scheduler.put_other(self._kind, changed, now))

    def drop(self, deleted: Object) -> None:
        """Post a deletion."""
        self._known.pop(str(metadata_of(deleted).get("uid")), None)
        self._event_queue.post(lambda scheduler, now: scheduler.drop_other(self._kind, deleted, now))


class ClusterFeed(ReflectorGroup):
    """Reflectors that fill an event queue.

    Args:
        api: client of the Kubernetes API for these watches alone; :meth:`close` aborts its requests.
        event_queue: receives the changes.
        kinds: kinds of :data:`LISTS` and :data:`OPTIONAL_LISTS` to watch.
        on_pod: called in the scheduling thread with each pod before it is changed, as by :class:`PodFeed`.
        failed: store of the pods that have failed; None to leave them out.
        kept_annotations: names of the annotations of nodes and pods that plugins read.
        on_refusal: called in the scheduling thread with each pending pod that cannot be read, as by :class:`PodFeed`.
    """

    def __init__(
        self,
        api: ListWatch,
        event_queue: EventQueue,
        kinds: Iterable[str] = (),
        on_pod: Callable[[str, Pod | None], None] = lambda _uid, _pod: None,
        failed: ReflectorStore | None = None,
        kept_annotations: Collection[str] = (),
        on_refusal: Callable[[Pod, str], None] = lambda _pod, _why: None,
    ) -> None:
        # Pods are listed last, so that the objects that they need are known when the first pod arrives.
        others = [_reflector(api, kind, KindEventHandler(kind, event_queue)) for kind in sorted(kinds)]
        self._nodes = NodeFeed(event_queue, kept_annotations)
        self._pods = PodFeed(event_queue, on_pod, kept_annotations, on_refusal)
        pods = Reflector(api, PODS, self._pods, fieldSelector=RUNNING)
        if failed is not None:
            others.append(Reflector(api, PODS, failed, fieldSelector=_FAILED))
        super().__init__((*others, Reflector(api, NODES, self._nodes), pods))

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Errors of the nodes and pods that cannot be decoded, by name."""
        return {**self._nodes.reader.unreadable, **self._pods.reader.unreadable}

    @property
    def unknown_nodes(self) -> Mapping[str, str]:
        """Reason for each node whose free CPU and memory are not known, because a pod on it cannot be counted."""
        return self._pods.unknown.by_node()


def _uid(each: Object) -> str:
    return str(metadata_of(each).get("uid"))


def _reflector(api: ListWatch, kind: str, store: ReflectorStore) -> Reflector:
    if kind in OPTIONAL_LISTS:
        path, *older_paths = OPTIONAL_LISTS[kind]
        return Reflector(OptionalLists(api, older_paths), path, store)
    return Reflector(api, LISTS[kind], store)
