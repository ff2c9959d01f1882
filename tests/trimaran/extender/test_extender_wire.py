"""Request and response bodies of the extender API."""

import threading
import tracemalloc
from functools import partial
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.extending import extender_args

from runtime.kubernetes.workloads import workload_of
from scoring import Workload
from trimaran.extender.wire import BadRequest, ExtenderArgs, decoded_fields, encode


def test_pod_and_node_names_are_read() -> None:
    """The pod, its scheduler name and the ordered candidates are read."""
    args = ExtenderArgs.decode(orjson.dumps(extender_args("node-2", "node-1")))
    assert (args.pod.uid, args.scheduler_name) == ("uid-of-pod-1", "load-aware")
    assert args.node_names == ("node-2", "node-1")


@pytest.mark.parametrize("write", [str.lower, str.upper, lambda key: key[0].lower() + key[1:]])
def test_keys_are_read_in_any_case(write) -> None:
    """``pod``, ``nodeNames`` and ``NODENAMES`` are read like ``Pod`` and ``NodeNames``, as in Go."""
    document = {write(key): value for key, value in extender_args("node-1").items()}
    assert ExtenderArgs.decode(orjson.dumps(document)).node_names == ("node-1",)


def test_whole_nodes_are_read_by_name() -> None:
    """Without ``nodeCacheCapable`` the names are read from whole nodes."""
    items = [{"metadata": {"name": name}, "status": {"capacity": {"cpu": "4"}}} for name in ("node-1", "node-2")]
    document = {**extender_args(), "NodeNames": None, "Nodes": {"metadata": {}, "items": items}}
    assert ExtenderArgs.decode(orjson.dumps(document)).node_names == ("node-1", "node-2")


def test_a_repeated_candidate_counts_once() -> None:
    """A repeated node name is one candidate, since kube-scheduler adds up all scores of a node."""
    assert ExtenderArgs.decode(orjson.dumps(extender_args("a", "b", "a"))).node_names == ("a", "b")


@pytest.mark.parametrize("nodes", [None, {}, {"items": None}, {"items": []}])
def test_empty_or_missing_nodes_are_valid(nodes) -> None:
    """Empty and missing node lists are read as no candidates."""
    document = {**extender_args(), "NodeNames": None, "Nodes": nodes}
    assert ExtenderArgs.decode(orjson.dumps(document)).node_names == ()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"Pod": {"spec": {"priority": NaN}}}', "not JSON"),
        (b"[" * 100_000 + b"]" * 100_000, "not JSON"),
        (b"[]", "the body "),
        (b"null", "the body "),
        (b"{}", "no Pod"),
        (b'{"Pod": null}', "no Pod"),
        (b'{"Pod": "pod-1"}', "no Pod"),
        (b'{"Pod": {"spec": {"containers": 7}}}', "the Pod cannot be read"),
        (b'{"Pod": {"spec": {"containers": [{"resources": {"requests": {"cpu": "much"}}}]}}}', "cannot be read"),
        (b'{"Pod": {"metadata": {"name": "a"}}, "NodeNames": "node-1"}', "NodeNames "),
        (b'{"Pod": {"metadata": {"name": "a"}}, "NodeNames": ["node-1", 7]}', "NodeNames: "),
        (b'{"Pod": {"metadata": {"name": "a"}}, "Nodes": []}', "Nodes "),
        (b'{"Pod": {"metadata": {"name": "a"}}, "Nodes": {"items": {}}}', "Nodes.items "),
        (b'{"Pod": {"metadata": {"name": "a"}}, "Nodes": {"items": [{}]}}', "Nodes.items: "),
    ],
)
def test_an_invalid_body_is_refused_with_the_invalid_part(body: bytes, why: str) -> None:
    """The error of an invalid body names the invalid part."""
    with pytest.raises(BadRequest, match=why):
        ExtenderArgs.decode(body)


LARGE = 31 << 20  # bytes, below the limit of the server


def peak_of_refusal(body: bytes) -> int:
    """Return the memory that the process takes at most while a body is refused, bytes."""
    tracemalloc.start()
    try:
        with pytest.raises(BadRequest, match="256 MiB"):
            ExtenderArgs.decode(body)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("route", ["Pod", "NodeNames", "Nodes"])
@pytest.mark.parametrize("element", [b"{}", b"[]", b"7", b'{"":{}}', b'"a"', b"[[7]]", b'{"a":7}'])
def test_a_body_of_many_elements_is_refused_before_it_is_decoded(element: bytes, route: str) -> None:
    """A body that would take a gigabyte once decoded is refused, wherever its elements are, and takes no memory."""
    many = b"[" + (element + b",") * (LARGE // (len(element) + 1)) + element + b"]"
    body = b'{"Pod": {"metadata": {"name": "a"}}, "%s": %s}' % (route.encode(), many)
    # Threads of other tests may take memory meanwhile, but hardly each time.
    assert any(peak_of_refusal(body) < 1 << 20 for _ in range(3))


def whole_node(number: int) -> dict[str, Any]:
    """Return a Node with 40 images, as kubelet reports them."""
    digest = "0123456789abcdef" * 4
    images = [
        {"names": [f"registry.example/team/app-{n}@sha256:{digest}", f"registry.example/team/app-{n}:v1"],
         "sizeBytes": 123456789 + n}
        for n in range(40)
    ]  # fmt: skip
    conditions = [
        {"type": f"Condition{n}", "status": "False", "reason": "KubeletHasNone", "message": "kubelet has none"}
        for n in range(5)
    ]
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "110", "ephemeral-storage": "100Gi", "hugepages-2Mi": "0"}
    labels = {f"example.com/label-{n}": "value" for n in range(20)}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": conditions, "images": images}
    return {"metadata": {"name": f"node-{number}", "labels": labels}, "status": status}


def test_a_large_body_of_whole_nodes_is_decoded() -> None:
    """A body of whole nodes, up to the size that the server accepts, is decoded."""
    size = len(orjson.dumps(whole_node(0)))
    items = [whole_node(number) for number in range(LARGE // size)]
    document = {**extender_args(), "NodeNames": None, "Nodes": {"items": items}}
    assert len(ExtenderArgs.decode(orjson.dumps(document)).node_names) == len(items)


def test_large_bodies_are_decoded_one_at_a_time() -> None:
    """While a large body is decoded, other large bodies wait, but small ones do not."""
    names = [f"node-{number}" for number in range(60_000)]
    large = orjson.dumps(extender_args(*names))
    with decoded_fields(large):
        waiting = threading.Thread(target=ExtenderArgs.decode, args=(large,), daemon=True)
        waiting.start()
        assert ExtenderArgs.decode(orjson.dumps(extender_args("node-1"))).node_names == ("node-1",)
        waiting.join(0.2)
        assert waiting.is_alive()
    waiting.join(20)
    assert not waiting.is_alive()


def test_the_number_of_candidates_is_limited() -> None:
    """More candidates than any cluster has are refused."""
    names = [f"{number}" for number in range(200_001)]
    assert len(ExtenderArgs.decode(orjson.dumps(extender_args(*names[:-1]))).node_names) == 200_000
    with pytest.raises(BadRequest, match=r"NodeNames .* 200,000"):
        ExtenderArgs.decode(orjson.dumps(extender_args(*names)))


@pytest.mark.parametrize("field", ["name", "namespace", "uid", "schedulerName"])
def test_a_pod_with_a_long_name_is_refused(field: str) -> None:
    """Names that Kubernetes does not allow would fill the record of decisions."""
    document = extender_args("node-1")
    document["Pod"]["spec" if field == "schedulerName" else "metadata"][field] = "x" * 254
    with pytest.raises(BadRequest, match="253 characters"):
        ExtenderArgs.decode(orjson.dumps(document))


def test_scores_are_encoded_as_a_host_priority_list() -> None:
    """Each entry has the keys Host and Score."""
    assert encode(("node-1", "node-2"), (7, 100)) == b'[{"Host":"node-1","Score":7},{"Host":"node-2","Score":100}]'


@given(st.lists(st.tuples(st.text(min_size=1), st.integers(0, 100)), max_size=8))
def test_any_node_name_is_encoded_correctly(scores: list[tuple[str, int]]) -> None:
    """Names with quotes, controls or any other characters are read back unchanged."""
    names, points = [name for name, _ in scores], [score for _, score in scores]
    assert orjson.loads(encode(names, points)) == [{"Host": name, "Score": score} for name, score in scores]
    plain = [f"node-{number}" for number in range(len(points))]
    assert orjson.loads(encode(plain, points)) == [
        {"Host": name, "Score": score} for name, score in zip(plain, points, strict=True)
    ]


def test_the_workload_of_a_pod_follows_the_setting() -> None:
    """A pod to score has the workload that the given function names, such as by a label."""
    pod = {"metadata": {"name": "web-1", "labels": {"team": "search"}}, "spec": {}}
    body = orjson.dumps({"Pod": pod, "NodeNames": ["a"]})
    assert ExtenderArgs.decode(body).pod.workload == Workload("default", "Pod", "web")
    by_team = partial(workload_of, owner_labels=("team",))
    assert ExtenderArgs.decode(body, None, by_team).pod.workload == Workload("default", "Label", "search")
