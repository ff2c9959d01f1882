"""Request and response bodies of the extender API."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.extending import extender_args

from trimaran.extender.wire import BadRequest, ExtenderArgs, encode


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
        (b"[]", "the body must be an object"),
        (b"null", "the body must be an object"),
        (b"{}", "no Pod"),
        (b'{"Pod": null}', "no Pod"),
        (b'{"Pod": "pod-1"}', "no Pod"),
        (b'{"Pod": {"spec": {"containers": 7}}}', "the Pod cannot be read"),
        (b'{"Pod": {"spec": {"containers": [{"resources": {"requests": {"cpu": "much"}}}]}}}', "cannot be read"),
        (b'{"Pod": {}, "NodeNames": "node-1"}', "NodeNames must be a list"),
        (b'{"Pod": {}, "NodeNames": ["node-1", 7]}', "NodeNames must be non-empty strings"),
        (b'{"Pod": {}, "Nodes": []}', "Nodes must be an object"),
        (b'{"Pod": {}, "Nodes": {"items": {}}}', "Nodes.items must be a list"),
        (b'{"Pod": {}, "Nodes": {"items": [{}]}}', "the names of Nodes.items must be non-empty strings"),
    ],
)
def test_an_invalid_body_is_refused_with_the_invalid_part(body: bytes, why: str) -> None:
    """The error of an invalid body names the invalid part."""
    with pytest.raises(BadRequest, match=why):
        ExtenderArgs.decode(body)


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
