"""Problems of a trace's files: errors, which make replays impossible or wrong, and warnings about likely mistakes."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

_MAX_SHOWN = 60  # characters of a name in a message
_MAX_LINES = 20  # messages about the same kind of problem in a file


class TraceError(Exception):
    """Error in a trace's files; the message names the file, the problem and the remedy."""


class TraceProblems:
    """Errors and warnings of a trace's files, collected so that all of them can be reported at once.

    Attributes:
        errors: problems with which the trace cannot be replayed, or would be replayed wrongly.
        warnings: input that is ignored, or that is probably a mistake.
    """

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.warnings: list[str] = []

    def refuse(self, *texts: str) -> None:
        """Add errors."""
        self.errors += texts

    def refuse_many(self, path: Path, texts: Collection[str]) -> None:
        """Add errors of one kind in a file."""
        self.refuse(*shortened(path, texts))

    def warn(self, *texts: str) -> None:
        """Add warnings."""
        self.warnings += texts

    def check_names(self, path: Path, what: str, given: Sequence[str], known: Sequence[str]) -> None:
        """Report names that a file has twice, and names that nothing reads.

        An unknown name is an error if it is similar to a known one that is missing: it is probably misspelled, and a
        default would silently stand in for its value. Other unknown names are warnings.

        Args:
            path: the file.
            what: what the names are, such as ``column``.
            given: names in the file.
            known: names that are read.
        """
        missing = [name for name in known if name not in given]
        for name in dict.fromkeys(given):
            if name and given.count(name) > 1:
                self.refuse(f"{path}: {what} {name!r} is given {given.count(name)} times; keep one of them")
            if name in known or not name:  # spreadsheets write empty names for empty columns
                continue
            near = get_close_matches(name.lower(), missing, n=1)
            if near:
                self.refuse(f"{path}: {what} {name[:_MAX_SHOWN]!r} is not read; did you mean {near[0]}?")
            else:
                self.warn(f"{path}: {what} {name[:_MAX_SHOWN]!r} is not read; known names: {', '.join(known)}")

    def raise_errors(self, remedy: str = "") -> None:
        """Raise the first error, with the number of the others.

        Args:
            remedy: hint on how to see all errors, if there are several.

        Raises:
            TraceError: there is an error.
        """
        if self.errors:
            first, *others = self.errors
            problems = "1 more problem" if len(others) == 1 else f"{len(others)} more problems"
            more = f" (and {problems}{remedy})" if others else ""
            raise TraceError(f"{first}{more}")


def shortened(path: Path, texts: Collection[str]) -> list[str]:
    """Return messages about one kind of problem in a file: the first ones, and the number of the others."""
    shown = [f"{path}: {text}" for text in islice(texts, _MAX_LINES)]
    more = len(texts) - len(shown)
    return [*shown, f"{path}: {more} more problems like the last one"] if more else shown
