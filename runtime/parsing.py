"""Parsers for YAML, TOML and JSON that may be hostile: memory and nesting are bounded, every failure is a ValueError.

All YAML that the process reads passes through :func:`parse_yaml`, :func:`parse_documents` or :func:`compose_yaml`
(``make lint`` checks this). libyaml's loader recurses without a limit, so that 60 KB of ``- - - -`` end the process by
a segmentation fault. Its stream of events does not recurse: the limits are checked there, before the text is loaded.

The standard library's parsers recurse until Python refuses, after a number of levels that depends on the version: 1,000
in Python 3.11, and for JSON some 10,000 in 3.13. :func:`parse_toml` and :func:`parse_json` have the same limit on each
version (``make lint`` checks that they are used). orjson needs no such function: it refuses more than 1,024 levels.
"""

import json
import re
import tomllib
from collections.abc import Callable
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml
    from _typeshed import SupportsRead

MAX_CONFIGURATION_BYTES = 4 << 20
_MAX_DEPTH = 100  # Kubernetes objects have about 20 levels, custom resource definitions about 60
# Limits on the characters and values that aliases repeat; the higher one counts. A generated list of equal nodes
# repeats 20 per character of its text; a few hostile lines ("billion laughs") could repeat gigabytes.
_MAX_REPEATED = 1_000_000
_MAX_REPEATED_PER_CHARACTER = 100
_MAX_SQUARED_DOTS = 10_000_000  # tomllib keeps all prefixes of a dotted key: 1,000 parts take 4 MB, 20,000 take 1.5 GB
_TOO_DEEP = f"nested too deeply: more than {_MAX_DEPTH} levels"

_JSON_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)  # possessive, so that long strings take no memory
_NO_NAME = re.compile(r'in "<(?:byte|unicode) string>", ')  # libyaml's name of a text that is not a file


def read_bounded(file: "SupportsRead[bytes]", max_bytes: int = MAX_CONFIGURATION_BYTES) -> bytes:
    """Return the content of a file or response.

    Raises:
        ValueError: the content is larger than ``max_bytes``.
        OSError: the content cannot be read.
    """
    content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"larger than {max_bytes >> 20:,} MiB")
    return content


def parse_yaml(text: bytes | str) -> Any:
    """Return the only document of a YAML text; None if the text is empty.

    Raises:
        ValueError: the text is not valid YAML, or exceeds a limit; the message has the line.
    """
    documents = parse_documents(text)
    if len(documents) > 1:
        raise ValueError("expected one YAML document, but there are several, separated by ---")
    return documents[0] if documents else None


def parse_documents(text: bytes | str) -> list[Any]:
    """Return all documents of a YAML text.

    Raises:
        ValueError: the text is not valid YAML, or exceeds a limit; the message has the line.
    """
    import yaml  # not needed to run a watcher

    try:
        _check_limits(text)
        return list(yaml.load_all(text, Loader=yaml.CSafeLoader))
    except yaml.YAMLError as error:
        raise ValueError(_one_line(error)) from error
    except (TypeError, LookupError, AttributeError, ArithmeticError) as error:  # such as "!!bool maybe"
        raise ValueError(f"a value does not match its YAML tag, such as !!int: {error}") from error


def compose_yaml(text: bytes | str) -> "yaml.Node | None":
    """Return the nodes of a YAML text, which have line numbers; None if the text is empty.

    Raises:
        ValueError: the text is not valid YAML, or exceeds a limit; the message has the line.
    """
    import yaml

    try:
        _check_limits(text)
        return yaml.compose(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise ValueError(_one_line(error)) from error


def parse_toml(content: bytes) -> dict[str, Any]:
    """Return the tables of a TOML file.

    Raises:
        ValueError: the content is not valid TOML, or exceeds a limit.
    """
    text = content.decode()
    if sum(line.count(".") ** 2 for line in text.splitlines()) > _MAX_SQUARED_DOTS:
        raise ValueError("too many dotted keys, such as a.b.c: write tables instead")
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    _check_depth(tables)  # dotted keys nest without recursion
    return tables


def parse_json(text: bytes | str, unique: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Return the value of a JSON text, which may contain NaN and infinite numbers; orjson refuses these.

    Args:
        text: the JSON text; bytes are UTF-8, UTF-16 or UTF-32.
        unique: function that makes an object from its pairs of key and value, even with duplicate keys; None for dict.

    Raises:
        ValueError: the text is not valid JSON, or exceeds a limit.
    """
    check_json_depth(text)
    return json.loads(text, object_pairs_hook=unique)


def check_json_depth(text: bytes | str) -> None:
    """Check the nesting of a JSON text before the standard library parses it.

    Raises:
        ValueError: the values are nested too deeply.
    """
    text = text if isinstance(text, str) else text.decode(json.detect_encoding(text), "replace")
    # Strings may contain brackets. They are removed only from texts with many brackets, which are rare.
    if text.count("[") + text.count("{") > _MAX_DEPTH:
        brackets = re.findall(r"[\[\]{}]", _JSON_STRING.sub("", text))
        if max(accumulate(1 if bracket in "[{" else -1 for bracket in brackets), default=0) > _MAX_DEPTH:
            raise ValueError(_TOO_DEEP)


def _check_depth(document: dict[str, Any]) -> None:
    """Check the nesting of tables and arrays, one level after another, because a recursive function has a limit, too.

    Raises:
        ValueError: the values are nested too deeply.
    """
    level: list[Any] = [document]
    for _ in range(_MAX_DEPTH):
        values = chain.from_iterable(each.values() if isinstance(each, dict) else each for each in level)
        level = [value for value in values if isinstance(value, dict | list)]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def _one_line(error: Exception) -> str:
    return _NO_NAME.sub("at ", " ".join(str(error).split()))


def _check_limits(text: bytes | str) -> None:
    """Check the nesting of a YAML text, and the size to which its aliases expand.

    Raises:
        ValueError: a limit is exceeded.
        YAMLError: the text is not valid YAML.
    """
    import yaml

    size = repeated = 0  # characters and values so far, and those that aliases repeat
    most = max(_MAX_REPEATED, _MAX_REPEATED_PER_CHARACTER * len(text))
    around: list[tuple[str | None, int]] = []  # anchors of the sequences and mappings around an event, and sizes before
    anchored: dict[str | None, int] = {}  # size by anchor
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        match event:
            case yaml.AliasEvent(anchor=anchor):
                if any(anchor == each for each, _ in around):
                    raise ValueError(f"line {_line(event)}: the alias *{anchor} contains itself")
                size += anchored.get(anchor, 0)
                repeated += anchored.get(anchor, 0)
                if repeated > most:
                    raise ValueError(
                        f"line {_line(event)}: the aliases (*{anchor}) repeat too much: write out the values"
                    )
            case yaml.ScalarEvent(anchor=anchor, value=value):
                anchored[anchor] = 1 + len(value)
                size += 1 + len(value)
            case yaml.CollectionStartEvent(anchor=anchor):
                around.append((anchor, size))
                size += 1
                if len(around) > _MAX_DEPTH:
                    raise ValueError(f"line {_line(event)}: more than {_MAX_DEPTH} nested levels")
            case yaml.CollectionEndEvent():
                anchor, before = around.pop()
                anchored[anchor] = size - before


def _line(event: "yaml.Event") -> int:
    return 1 if event.start_mark is None else event.start_mark.line + 1
