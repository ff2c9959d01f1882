"""Events: each is written by one function, with a note that the API server accepts."""

import ast
from pathlib import Path

import pytest
from support.binding_api import BindingApi

from runtime.http.gather import Deadline
from runtime.kubernetes.events import EventWriter, create_event

ROOT = Path(__file__).parents[2]
SUBJECT = {"kind": "Pod", "namespace": "shop", "name": "web"}


@pytest.mark.parametrize(("kind", "field"), [("Event", "message"), ("Event.events.k8s.io", "note")])
@pytest.mark.parametrize(
    ("note", "written"),
    [
        ("x" * 1024, "x" * 1024),
        ("x" * 1025, "x" * 1024),
        ("x" + "é" * 600, "x" + "é" * 511),  # the API server counts bytes
        ("💥" * 300, "💥" * 256),
        ("\ud800", "?"),  # such as JSON may have, but UTF-8 may not
    ],
)
def test_a_note_is_cut_to_the_bytes_that_the_api_server_accepts(kind: str, field: str, note: str, written: str) -> None:
    """A longer note would lose the whole Event; no character is cut in two."""
    api = BindingApi()
    create_event(api, kind, SUBJECT, note, {"reason": "Tried"}, Deadline.after(10), namespace="shop")
    (event,) = api.bodies
    assert event[field] == written
    assert event["reason"] == "Tried"


def test_the_writer_of_controllers_cuts_its_message() -> None:
    """Its Events are about the object, in the object's namespace."""
    api = BindingApi()
    EventWriter(api, "ours").write(SUBJECT, "Moved", "é" * 1000, Deadline.after(10))
    assert api.sent == ["POST /api/v1/namespaces/shop/events"]
    (event,) = api.bodies
    assert (event["involvedObject"], event["reason"], event["message"]) == (SUBJECT, "Moved", "é" * 512)


def test_no_other_module_makes_an_event() -> None:
    """The kind of the document and its API stand in one module, next to the limit."""
    named = {"Event", "events.k8s.io/v1"}
    files = [file for package in ("runtime", "watcher", "trimaran") for file in (ROOT / package).rglob("*.py")]
    makers = [
        file.relative_to(ROOT).as_posix()
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and key.value in {"kind", "apiVersion"}
        if isinstance(value, ast.Constant) and value.value in named
    ]
    assert makers == ["runtime/kubernetes/events.py"]
