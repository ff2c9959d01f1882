"""Make Markdown of what docstrings have besides it: cross-references in roles, and examples at the prompt."""

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|mod|data|meth|attr|exc):`(~?)([\w.]+)`")
_EXAMPLE = re.compile(r"(?:^>>> .*\n(?:^(?:>>> |\.\.\. ?).*(?:\n|\Z))*)", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Changes the docstrings of a package once it is loaded."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Turn :class:`~package.Name` into a link, where the site has it, and ``>>>`` into a block of code."""
        _change(pkg)


def _change(thing: griffe.Object) -> None:
    if thing.docstring:
        text = _ROLE.sub(_reference, thing.docstring.value)
        thing.docstring.value = _EXAMPLE.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n", text)
    for member in thing.members.values():
        if isinstance(member, griffe.Object):  # and no alias of what is changed at its home
            _change(member)


def _reference(match: re.Match[str]) -> str:
    short, name = match.groups()
    label = name.rpartition(".")[2] if short else name
    return f'<autoref identifier="{name}" optional><code>{label}</code></autoref>' if "." in name else f"`{name}`"
