"""Converter of docstrings to Markdown: cross-references in roles, and examples at the prompt."""

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|mod|data|meth|attr|exc):`(~?)([\w.]+)`")
_EXAMPLE = re.compile(r"(?:^>>> .*\n(?:^(?:>>> |\.\.\. ?).*(?:\n|\Z))*)", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Extension of griffe that converts the docstrings of a package when it is loaded."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Convert :class:`~package.Name` to a link, if the site has the class, and ``>>>`` to a block of code."""
        _convert(pkg)


def _convert(item: griffe.Object) -> None:
    if item.docstring:
        text = _ROLE.sub(_reference, item.docstring.value)
        item.docstring.value = _EXAMPLE.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n", text)
    for member in item.members.values():
        if isinstance(member, griffe.Object):  # not an alias, whose target is converted in its own module
            _convert(member)


def _reference(match: re.Match[str]) -> str:
    short, name = match.groups()
    label = name.rpartition(".")[2] if short else name
    return f'<autoref identifier="{name}" optional><code>{label}</code></autoref>' if "." in name else f"`{name}`"
