"""Checks of ``make lint`` that are ours: the language of code and pages, and the subjects of commits."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUBJECTS = runpy.run_path(str(ROOT / "tools" / "commit_subjects.py"))
WORDS = runpy.run_path(str(ROOT / "tools" / "words.py"))


@pytest.mark.parametrize(
    ("subject", "fault"),
    [
        ("Bind pods with their uid", ""),
        ("Pass the deadline on", ""),
        ("Embed the watcher", ""),
        ("Added a test", "imperative"),
        ("Adds a test", "imperative"),
        ("Adding a test", "imperative"),
        ("The loop ends", "imperative"),
        ("Docs: name the folder", "area"),
        ("bind pods", "small letter"),
        ("Bind pods.", "period"),
        (f"Bind {'p' * 70}", "75 characters"),
    ],
)
def test_a_subject_is_one_imperative_sentence(subject: str, fault: str) -> None:
    """Other moods, areas, periods and long lines are faults; plain imperatives are not."""
    found = SUBJECTS["fault"](subject)
    assert fault in found
    assert bool(found) == bool(fault)


def test_docstrings_and_phrases_are_checked(tmp_path: Path) -> None:
    """A wh-word at a docstring's beginning and banned phrases in strings, comments and pages are found."""
    module = tmp_path / "module.py"
    module.write_text('"""What it does."""\n\n# done anew\nMESSAGE = "is told so"\n')
    (first,) = WORDS["docstrings"](module)
    assert WORDS["FIRST"].match(first[1])
    texts = "\n".join(text for _, text in WORDS["prose"](module))
    assert {"anew", "is told"} <= {found[0] for pattern, _ in WORDS["_PHRASES"] for found in [pattern.search(texts)] if found}
    page = tmp_path / "page.md"
    page.write_text("Kept beside it.\n```\nbeside\n```\n`beside`\n")
    assert [text for _, text in WORDS["prose"](page) if "beside" in text] == ["Kept beside it."]
