"""What kube-scheduler and others send to the extender, and what is answered."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.extending import asked

from trimaran.extender.wire import BadRequest, ExtenderArgs, encode


def test_names_and_pod_are_read() -> None:
    """The pod with its scheduler's name, and the candidates in their order."""
    found = ExtenderArgs.decode(orjson.dumps(asked("node-2", "node-1")))
    assert (found.pod.uid, found.scheduler_name) == ("uid-of-pod-1", "load-aware")
    assert found.node_names == ("node-2", "node-1")


@pytest.mark.parametrize("write", [str.lower, str.upper, lambda key: key[0].lower() + key[1:]])
def test_keys_are_read_in_any_case(write) -> None:
    """``pod``, ``nodeNames`` and ``NODENAMES`` are what ``Pod`` and ``NodeNames`` are, as Go reads them."""
    document = {write(key): value for key, value in asked("node-1").items()}
    assert ExtenderArgs.decode(orjson.dumps(document)).node_names == ("node-1",)


def test_whole_nodes_are_taken_by_name() -> None:
    """Without ``nodeCacheCapable`` the scheduler sends Nodes, of which the names count."""
    items = [{"metadata": {"name": name}, "status": {"capacity": {"cpu": "4"}}} for name in ("node-1", "node-2")]
    document = {**asked(), "NodeNames": None, "Nodes": {"metadata": {}, "items": items}}
    assert ExtenderArgs.decode(orjson.dumps(document)).node_names == ("node-1", "node-2")


def test_a_candidate_that_is_named_twice_counts_once() -> None:
    """A scheduler adds up what it gets: two entries of a node would count double."""
    assert ExtenderArgs.decode(orjson.dumps(asked("a", "b", "a"))).node_names == ("a", "b")


@pytest.mark.parametrize("nodes", [None, {}, {"items": None}, {"items": []}])
def test_no_candidates_are_none(nodes) -> None:
    """Empty lists and missing ones are no error."""
    document = {**asked(), "NodeNames": None, "Nodes": nodes}
    assert ExtenderArgs.decode(orjson.dumps(document)).node_names == ()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b'{"Pod": {"spec": {"priority": NaN}}}', "no JSON"),
        (b"[" * 100_000 + b"]" * 100_000, "no JSON"),
        (b"[]", "the body is no object"),
        (b"null", "the body is no object"),
        (b"{}", "no Pod"),
        (b'{"Pod": null}', "no Pod"),
        (b'{"Pod": "pod-1"}', "no Pod"),
        (b'{"Pod": {"spec": {"containers": 7}}}', "the Pod cannot be read"),
        (b'{"Pod": {"spec": {"containers": [{"resources": {"requests": {"cpu": "much"}}}]}}}', "cannot be read"),
        (b'{"Pod": {}, "NodeNames": "node-1"}', "NodeNames are no list"),
        (b'{"Pod": {}, "NodeNames": ["node-1", 7]}', "NodeNames are not all texts"),
        (b'{"Pod": {}, "Nodes": []}', "Nodes is no object"),
        (b'{"Pod": {}, "Nodes": {"items": {}}}', "Nodes.items are no list"),
        (b'{"Pod": {}, "Nodes": {"items": [{}]}}', "names of Nodes.items are not all texts"),
    ],
)
def test_what_is_no_request_is_refused_by_name(body: bytes, why: str) -> None:
    """What cannot be read says which part of it cannot."""
    with pytest.raises(BadRequest, match=why):
        ExtenderArgs.decode(body)


def test_scores_are_written_as_go_reads_them() -> None:
    """A HostPriorityList has Host and Score."""
    assert encode(("node-1", "node-2"), (7, 100)) == b'[{"Host":"node-1","Score":7},{"Host":"node-2","Score":100}]'


@given(st.lists(st.tuples(st.text(min_size=1), st.integers(0, 100)), max_size=8))
def test_every_name_is_written_so_that_it_is_read(scores: list[tuple[str, int]]) -> None:
    """Whatever letters, quotes and controls are in it."""
    names, points = [name for name, _ in scores], [score for _, score in scores]
    assert orjson.loads(encode(names, points)) == [{"Host": name, "Score": score} for name, score in scores]
    plain = [f"node-{number}" for number in range(len(points))]
    assert orjson.loads(encode(plain, points)) == [
        {"Host": name, "Score": score} for name, score in zip(plain, points, strict=True)
    ]
