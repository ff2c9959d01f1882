"""Tables of the evidence page: combination of files."""

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

RESEARCH = Path(__file__).parents[2] / "research"


@pytest.fixture
def evidence_tables(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(RESEARCH))
    return importlib.import_module("evidence_tables")


def write(file: Path, document: Any) -> Path:
    file.write_text(json.dumps(document))
    return file


def test_seeds_are_averaged_and_policies_combined(evidence_tables: ModuleType, tmp_path: Path) -> None:
    """Files with the same policy and world are seeds of it; a world that lacks a policy is left out."""
    files = [
        write(tmp_path / "seed-0.json", {"a": {"default": {"hot": 10.0}}, "b": {"default": {"hot": 1.0}}}),
        write(tmp_path / "seed-1.json", {"a": {"default": {"hot": 20.0}}}),
        write(tmp_path / "oracle.json", {"a": {"oracle": {"hot": 3.0}}}),
    ]
    assert evidence_tables.read(files) == {"a": {"default": {"hot": 15.0}, "oracle": {"hot": 3.0}}}
