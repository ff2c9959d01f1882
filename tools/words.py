"""Check the language of code and documentation: ``make lint`` runs it.

Holds the rules of docs/glossary.md that a program can hold: docstrings that begin with a noun or a verb, phrases that
have a plainer form, and public class names that stand once. ``--count`` counts "what is" in packages and benchmarks.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("runtime", "watcher", "client", "scoring", "trimaran")
FIRST = re.compile(r"(What|Who|Whose|Whom|Which|How|Where|When|Whether|Why)\b")
#: Phrase to the plainer form.
BANNED = {
    r"\bis (told|said)\b": "say who reports what",
    r"\banew\b": "again",
    r"\bbeside\b": "next to, with, in addition to",
    r"\bwhoever\b": "anyone who, callers that",
    r"\bwhat is\b[^.;:?]{1,60}\bis\b": "name the thing",
    r"\b(is|are) none (that|of)\b": "negate the verb",
    r"\bnot so\b": "say what is not true",
    r"\bas it is\b": "unchanged",
    r"\bas it stands\b": "unchanged",
}
_PHRASES = [(re.compile(pattern, re.IGNORECASE), plainer) for pattern, plainer in BANNED.items()]
_COUNTED = re.compile(r"\bwhat is\b", re.IGNORECASE)


def files(*suffixes: str) -> list[Path]:
    """Return the files of the repository with a suffix; those that git ignores are left out."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    names = listed.stdout.split("\n") if listed.returncode == 0 else [str(p.relative_to(ROOT)) for p in ROOT.rglob("*")]
    paths = [ROOT / name for name in names if name.endswith(suffixes) and not name.startswith((".venv", "tests/data/"))]
    return sorted(path for path in paths if path.is_file() and path != Path(__file__))


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring of a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of what people read: strings and comments of a module, a page without its code blocks."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in {tokenize.STRING, tokenize.COMMENT}:
                yield from enumerate(token.string.split("\n"), token.start[0])
        return
    in_code = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith(("```", "~~~")):
            in_code = not in_code
        elif not in_code:
            yield number, re.sub(r"`[^`]*`", "", line)


def classes() -> dict[str, list[str]]:
    """Return the public classes of the packages: name to places."""
    found = defaultdict(list)
    for path in files(".py"):
        if path.relative_to(ROOT).parts[0] in PACKAGES:
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def problems() -> Iterator[str]:
    """Yield a line for each problem, with its place."""
    for path in files(".py", ".md"):
        place = path.relative_to(ROOT)
        if path.suffix == ".py":
            for line, text in docstrings(path):
                if FIRST.match(text):
                    yield f"{place}:{line}: the docstring begins with {text.split()[0]!r}: begin with a noun or a verb"
        for line, text in prose(path):
            for pattern, plainer in _PHRASES:
                if found := pattern.search(text):
                    yield f"{place}:{line}: {found[0]!r}: {plainer}"
    for name, places in sorted(classes().items()):
        if len(places) > 1:
            yield f"{name} is the name of {len(places)} classes: {', '.join(places)}"


def count() -> int:
    """Return how often "what is" stands in packages and benchmarks."""
    counted = (
        path for path in files(".py") if path.relative_to(ROOT).parts[0] in {*PACKAGES, "benchmarks", "research"}
    )
    return sum(len(_COUNTED.findall(path.read_text(encoding="utf-8"))) for path in counted)


def main() -> int:
    """Print the problems; return 1 where there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", help="show problems of these files and folders only")
    parser.add_argument("--count", action="store_true", help="count 'what is' in packages, benchmarks and research")
    arguments = parser.parse_args()
    if arguments.count:
        print(count())
        return 0
    shown = [line for line in problems() if not arguments.paths or line.startswith(tuple(arguments.paths))]
    print(*shown, sep="\n", end="\n" if shown else "")
    return 1 if shown else 0


if __name__ == "__main__":
    sys.exit(main())
