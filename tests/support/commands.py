"""Shell commands of the documentation, split into words as a shell splits them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("*.md", "docs/**/*.md", "benchmarks/*.md", "tests/**/*.md", "examples/**/*.md")
PROGRAMS = ("trimaran", "make", "curl", "pip", "python", "python3", "export")

_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_INDENTED = re.compile(rf"^ {{4}}((?:{'|'.join(PROGRAMS)}) .*)$", re.MULTILINE)
_SUBSTITUTION = re.compile(r"\$\([^()]*\)")
_VARIABLE = re.compile(r"[A-Z_]+=")


class Command(NamedTuple):
    """A command on a page of the documentation.

    Attributes:
        page: path of the page, relative to the repository.
        words: the program and its arguments, without environment variables and redirections.
        variables: environment variables before the program.
        whole: True for a complete command in a code block, False for a mention within text.
        reads_pipe: True if the command reads the output of another command.
    """

    page: str
    words: tuple[str, ...]
    variables: dict[str, str]
    whole: bool
    reads_pipe: bool

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def documented_commands() -> list[Command]:
    """Return the commands of all pages that start with one of ``PROGRAMS``."""
    pages = sorted({page for pattern in FOLDERS for page in ROOT.glob(pattern) if ".venv" not in page.parts})
    return [command for page in pages for command in _of(page)]


def _of(page: Path) -> Iterator[Command]:
    name, text = str(page.relative_to(ROOT)), page.read_text(encoding="utf-8")
    lines = []
    for language, block in _FENCE.findall(text):
        joined = re.sub(r"\\\n *", " ", block)
        if language in {"console", ""}:
            lines += [line.strip().removeprefix("$ ") for line in joined.splitlines() if line.strip().startswith("$ ")]
        elif language in {"sh", "bash", "shell"}:
            lines += joined.splitlines()
    plain = _FENCE.sub("", text)
    lines += _INDENTED.findall(plain)
    for line in lines:
        yield from _split(name, line, whole=True)
    for span in _SPAN.findall(plain):
        if " " in span and "\n\n" not in span:
            yield from _split(name, " ".join(span.split()), whole=False)


def _split(page: str, line: str, *, whole: bool) -> Iterator[Command]:
    if not any(program in line for program in PROGRAMS):
        return
    lexer = shlex.shlex(_SUBSTITUTION.sub("SUBSTITUTED", line), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        tokens = list(lexer)
    except ValueError:  # text about code, for example with an apostrophe
        return
    simple: list[str] = []
    reads_pipe = False
    for token in [*tokens, ";"]:
        if token[0] in ";|&":
            command = _command(page, simple, whole=whole, reads_pipe=reads_pipe)
            if command:
                yield command
            simple, reads_pipe = [], token == "|"
        else:
            simple.append(token)


def _command(page: str, words: list[str], *, whole: bool, reads_pipe: bool) -> Command | None:
    for at, word in enumerate(words):
        if word[0] in "<>":
            words = words[:at]
            break
    variables = {}
    while words and _VARIABLE.match(words[0]):
        name, _, variables[name] = words[0].partition("=")
        words = words[1:]
    if not words:
        return None
    program = words[0].removeprefix(".venv/bin/")
    if program not in PROGRAMS:
        return None
    if program == "export":
        variables = dict(word.partition("=")[::2] for word in words[1:])
    return Command(page, (program, *words[1:]), variables, whole, reads_pipe)
