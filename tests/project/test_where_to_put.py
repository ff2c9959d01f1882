"""The tour of the code and the table of places for new code in the documentation."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_HEAD = "| a new | goes to | and is announced in |"
_TOUR = "| | read | in | what happens |"
_PLACEHOLDER = re.compile(r"NAME|PACKAGE|WHAT")


def rows(head: str) -> list[str]:
    """Return the rows of the table with a head."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    return page[page.index(head) :].partition("\n\n")[0].splitlines()[2:]


def missing(row: str) -> list[str]:
    """Return the files and folders of a row that do not exist, and the names that their files do not define."""
    spans = [each for each in re.findall(r"`([^`]+)`", row) if re.fullmatch(r"[\w./-]+/[\w./-]*", each)]
    wrong = [each for each in spans if not _PLACEHOLDER.search(each) and not (ROOT / each).exists()]
    for name, file in re.findall(r"`(\w+)` (?:in|of) `([\w./]+\.py)`", row):
        if (ROOT / file).exists() and name not in defined(ROOT / file):
            wrong.append(f"{name} in {file}")
    return wrong


def defined(file: Path) -> set[str]:
    """Return the names that a module defines."""
    body = ast.parse(file.read_text()).body
    targets = [each.targets for each in body if isinstance(each, ast.Assign)]
    targets += [[each.target] for each in body if isinstance(each, ast.AnnAssign)]
    names = {target.id for each in targets for target in each if isinstance(target, ast.Name)}
    return names | {each.name for each in body if isinstance(each, ast.ClassDef | ast.FunctionDef)}


def is_defined(symbol: str, file: Path) -> bool:
    """Return whether a module defines a function, such as ``clean``, or a class with a method, ``Judge.judge``."""
    body = ast.parse(file.read_text()).body
    for name in symbol.split("."):
        found = [each for each in body if isinstance(each, ast.ClassDef | ast.FunctionDef) and each.name == name]
        if not found:
            return False
        body = found[0].body
    return True


@pytest.mark.parametrize("row", rows(_HEAD), ids=lambda row: row.split("|")[1].strip())
def test_places_exist(row: str) -> None:
    """Each file, folder and name that the table gives exists."""
    assert missing(row) == []


def test_the_check_detects_what_is_missing() -> None:
    """A file that does not exist and a name that its file lacks are detected; a placeholder is not."""
    names = "`NOTHING` in `watcher/model.py`, `Metric` in `watcher/model.py`"
    row = f"| a | `watcher/nowhere.py`, `scoring/plugins/NAME.py` | {names} |"
    assert missing(row) == ["watcher/nowhere.py", "NOTHING in watcher/model.py"]


@pytest.mark.parametrize("row", rows(_TOUR), ids=lambda row: row.split("|")[2].strip())
def test_tour_stops_exist(row: str) -> None:
    """Each file of the tour exists and defines the function that is to be read."""
    symbol, file = re.findall(r"`([^`]+)`", row)[:2]
    assert is_defined(symbol, ROOT / file)


def test_a_missing_tour_stop_is_detected() -> None:
    """A method or a function that the file lacks is detected."""
    file = ROOT / "watcher" / "store" / "store.py"
    assert is_defined("Store.save_snapshots", file)
    assert not is_defined("Store.nothing", file)
    assert not is_defined("save_snapshots", file)
