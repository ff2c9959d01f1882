"""Tests of the parsers for hostile YAML, TOML and JSON: every text ends in a value or a ValueError, within bounds."""

import io
import json
import resource
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from runtime.parsing import compose_yaml, parse_documents, parse_json, parse_toml, parse_yaml, read_bounded

LAUGHS = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}]\n" for a, b in pairwise("abcdefghijklmn"))
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 25))
DEEP = {
    "block sequences": "- " * 32_000,
    "flow sequences": "[" * 63_000,
    "flow mappings": "{a: " * 16_000,
    "keys": "? " * 32_000,
    "pairs": "[a: " * 16_000,
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
@pytest.mark.parametrize("parse", [parse_yaml, parse_documents, compose_yaml])
def test_deep_nesting_is_an_error(parse, text):
    """63 KB of nested YAML, which end the process with SIGSEGV in libyaml's loader, are refused with the line."""
    with pytest.raises(ValueError, match=r"line 1: .*100"):
        parse(text)
    assert parse("[" * 90 + "]" * 90)


@pytest.mark.parametrize("text", [LAUGHS, MERGES], ids=["sequences", "merge keys"])
@pytest.mark.parametrize("parse", [parse_yaml, parse_documents, compose_yaml])
def test_aliases_that_expand_are_an_error(parse, text):
    """A few lines of aliases ("billion laughs") are refused with the line, before they are expanded."""
    with pytest.raises(ValueError, match=r"line 1\d: .*aliases"):
        parse(text)


def test_an_alias_to_a_long_text_counts_its_characters():
    """Aliases of a text of 60,000 characters are refused once they mean gigabytes."""
    with pytest.raises(ValueError, match="aliases"):
        parse_yaml(f"- &a {'x' * 30_000}\n- [{'*a,' * 10_000}]")


def test_an_error_of_the_syntax_has_the_line_and_no_name_of_the_parser():
    """The caller adds the name of the file, which libyaml does not know."""
    for text in ("a: [", b"a: ["):
        with pytest.raises(ValueError, match="at line 2") as error:
            parse_yaml(text)
        assert "string>" not in str(error.value)


def test_an_alias_that_contains_itself_is_an_error():
    """A structure that contains itself, in which every search would be endless, is refused."""
    with pytest.raises(ValueError, match=r"line 1: .*\*a "):
        parse_yaml("&a [[*a]]")


def test_ordinary_aliases_are_expanded():
    """Aliases in a configuration, and in a large list of equal objects as yaml.dump writes it, keep their meaning."""
    assert parse_yaml("a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: [*a, *a]") == {
        "a": {"x": 1}, "b": {"x": 1, "y": 2}, "c": [{"x": 1}, {"x": 1}],
    }  # fmt: skip
    shared = {"labels": {f"label-{number}": "value" for number in range(100)}}
    nodes = [{"name": f"node-{number}", "metadata": shared} for number in range(2_000)]
    assert parse_yaml(yaml.safe_dump(nodes)) == nodes


@pytest.mark.parametrize(
    ("parse", "texts"),
    [
        (parse_yaml, ["a: [", "*a", "!!bool maybe", "!!int ''", "!!timestamp x", "!!python/object:os.system x",
                      "1" * 5_000, "1" + ":59" * 20_000 + ".5", "? [a]\n: 1", "2024-13-45", "\0", b"\xff\xfe\x00",
                      "a\n---\nb"]),
        (parse_toml, [b"a = " + b"[" * 20_000, b"a = " + b"{a=" * 20_000, b"\xff", b"a"]),
        (parse_json, ["", "[", '"', '"\\', '["a' + "[" * 200, b"\xff", "[]]" + "}" * 200, "1 2", "1" * 5_000]),
    ],
)  # fmt: skip
def test_every_failure_is_a_value_error(parse, texts):
    """Malformed texts, other encodings, values that tags do not allow, and several documents are errors."""
    for text in texts:
        with pytest.raises(ValueError, match=r"\w"):
            parse(text)


def test_empty_and_multiple_documents():
    """An empty text is None; several documents are returned in order, empty ones as None."""
    assert (parse_yaml(""), compose_yaml(""), parse_documents("")) == (None, None, [])
    assert parse_documents("a: 1\n---\n---\n[2]") == [{"a": 1}, None, [2]]


def test_large_files_are_not_read():
    """No more than the limit of a file is read, even if it has no end."""
    with Path("/dev/zero").open("rb") as endless, pytest.raises(ValueError, match="4 MiB"):
        read_bounded(endless)
    assert read_bounded(io.BytesIO(b"a")) == b"a"


def test_toml_with_long_dotted_keys_is_an_error():
    """40 KB of one dotted key, for which tomllib takes 1.5 GB, are refused before they are parsed."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match="dotted keys"):
        parse_toml(b".".join([b"a"] * 20_000) + b" = 1")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000
    addresses = ", ".join(f'"http://10.0.{number}.1:9090"' for number in range(250))
    assert len(parse_toml(f"[server]\na = [{addresses}]\nb.c = 1".encode())["server"]["a"]) == 250


def arrays(levels: int) -> str:
    """Return nested arrays, as JSON and as a value of TOML."""
    return "[" * levels + "]" * levels


DEEP_TOML = {
    "arrays": lambda levels: f"a = {arrays(levels - 1)}",
    "inline tables": lambda levels: "a = " + "{a = " * (levels - 1) + "1" + "}" * (levels - 1),
    "dotted key": lambda levels: ".".join("a" * levels) + " = 1",
    "header": lambda levels: f"[{'.'.join('a' * (levels - 1))}]\na = 1",
}


@pytest.mark.parametrize("levels", [101, 300, 900, 3_000])
@pytest.mark.parametrize("text", DEEP_TOML.values(), ids=DEEP_TOML)
def test_deep_toml_is_one_error(text, levels):
    """TOML of more than 100 levels is refused in the same words, whether or not this Python could parse it."""
    with pytest.raises(ValueError, match=r"^nested too deeply: more than 100 levels$"):
        parse_toml(text(levels).encode())
    assert parse_toml(text(100).encode())


@pytest.mark.parametrize("levels", [101, 900, 5_000, 20_000])
def test_deep_json_is_one_error(levels):
    """JSON of more than 100 levels is refused in the same words, even if incomplete, on each Python."""
    objects = '{"a":' * levels
    for text in (
        "[" * levels,
        arrays(levels),
        objects,
        objects + "1" + "}" * levels,
        f'["\\"[", {arrays(levels - 1)}]',
    ):
        for encoded in (text, text.encode(), text.encode("utf-16")):
            with pytest.raises(ValueError, match=r"^nested too deeply: more than 100 levels$"):
                parse_json(encoded)


def test_json_of_100_levels_and_many_brackets_is_read():
    """Brackets in strings, and in values next to each other, do not count as levels; NaN is a value."""
    texts = ["[" * 200, '\\"[' * 200, "\n{" * 200, '"' * 200]
    assert parse_json(json.dumps(texts)) == texts
    assert parse_json(json.dumps([{"a": [1]}] * 200).encode()) == [{"a": [1]}] * 200
    assert parse_json(arrays(100)) == json.loads(arrays(100))
    assert parse_json("[NaN, Infinity]")[1] == float("inf")
    assert parse_json('{"a": 1, "a": 2}', list) == [("a", 1), ("a", 2)]


def test_a_long_string_takes_no_memory():
    """Strings are skipped without a trace of each character: 4 MB of escapes take no more than copies of the text."""
    text = "[" * 90 + '"' + "\\n" * 2_000_000 + '"' + "]" * 90 + "[" * 90
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match="Extra data"):
        parse_json(text)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000
