"""The project's own checks in ``make lint``: language of code and pages, and subjects of commits."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUBJECTS = runpy.run_path(str(ROOT / "tools" / "commit_subjects.py"))
SIZE = runpy.run_path(str(ROOT / "tools" / "size.py"))
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
    message = SUBJECTS["fault"](subject)
    assert fault in message
    assert bool(message) == bool(fault)


#: Banned phrases, escaped so that the check does not find them in this file.
ADVERB, PHRASE, PREPOSITION = "\x61new", "is\x20told", "\x62eside"


def test_docstrings_and_phrases_are_checked(tmp_path: Path) -> None:
    """A wh-word at the start of a docstring and banned phrases in strings, comments and pages are found."""
    module = tmp_path / "module.py"
    module.write_text(f'"""What it does."""\n\n# done {ADVERB}\nMESSAGE = "{PHRASE} so"\n')
    (first,) = WORDS["docstrings"](module)
    assert WORDS["FIRST"].match(first[1])
    texts = "\n".join(text for _, text in WORDS["prose"](module))
    assert {ADVERB, PHRASE} <= {match[0] for pattern, _ in WORDS["_PHRASES"] if (match := pattern.search(texts))}
    page = tmp_path / "page.md"
    page.write_text(f"Kept {PREPOSITION} it.\n```\n{PREPOSITION}\n```\n`{PREPOSITION}`\n")
    assert [text for _, text in WORDS["prose"](page) if PREPOSITION in text] == [f"Kept {PREPOSITION} it."]


@pytest.mark.parametrize(("most", "fault"), [(4, "1 more than"), (5, ""), (1005, ""), (1006, "lower tool.trimaran")])
def test_the_packages_have_no_more_lines_than_allowed(tmp_path: Path, most: int, fault: str) -> None:
    """More lines than the limit are a fault, and so is a limit that could shrink."""
    for name in SIZE["PACKAGES"]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "module.py").write_text("# a line\n")
    (tmp_path / "pyproject.toml").write_text(f"[tool.trimaran]\nmax_lines = {most}\n")
    message = SIZE["fault"](tmp_path)
    assert fault in message
    assert bool(message) == bool(fault)
