"""Mutants of a group of modules: small changes of the code, each of which a test must notice.

python tools/mutants.py rebalancer                            # a group of tools/mutants.toml; goes on when cut off
python tools/mutants.py rest trimaran/traces/checks.py        # the group's mutants of these modules
python tools/mutants.py rebalancer --table                    # the results so far

mutmut makes the mutants in a copy of the repository, mutants/, and forks a process for each, which runs the tests that
reach the changed function, the quick ones first, until one fails. This file has what mutmut lacks: a choice of changes
(no texts, logs, metrics or checks of lengths), properties and other decorated functions, groups with a draw, and a
planted mutant of each module, which must be killed before any other is run. A killed mutant is run again when its
function changes, another one also when the tests change. A mutant that times out is not killed.

cosmic-ray was tried, too: it cannot exchange or drop arguments, rewrites the file that is checked out, and starts
pytest for each mutant, which took eight seconds where mutmut took one.
"""

import argparse
import hashlib
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from itertools import pairwise
from math import ceil
from pathlib import Path
from threading import Thread
from time import process_time, sleep
from typing import Any

import libcst as cst
from mutmut import __main__ as mutmut
from mutmut import configuration
from mutmut.mutation import file_mutation
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.runners.harness import PytestRunner
from mutmut.state import state
from mutmut.stats import save_stats, status_by_exit_code
from mutmut.utils.format_utils import mangled_name_from_mutant_name
from mutmut.workers import isolation
from mutmut.workers.isolation import ForkRunner

ROOT = Path(__file__).resolve().parents[1]
PLANTED = "__mutmut_1"  # the first mutant of each function raises
_MOST_SECONDS = 5.0  # processor time of tests for one mutant
_LONGEST = timedelta(minutes=10)  # for one mutant
_CANNOT_RUN = 35  # mutmut's "suspicious"
#: Calls and counters that are no behavior: logs, metrics, and reports for people.
_SILENT = re.compile(r"\b_?(log|logger|logging|warnings|counts|counters|metrics|telemetry|reporter|terminal)\b")
_SHARED_NAME = re.compile(r"\b(overload|setter|deleter|register|abstractmethod)\b")  # several functions of one name
_OTHERS: dict[type[cst.CSTNode], tuple[type[cst.CSTNode], ...]] = {
    cst.LessThan: (cst.LessThanEqual, cst.GreaterThanEqual), cst.LessThanEqual: (cst.LessThan, cst.GreaterThan),
    cst.GreaterThan: (cst.GreaterThanEqual, cst.LessThanEqual), cst.GreaterThanEqual: (cst.GreaterThan, cst.LessThan),
    cst.Equal: (cst.NotEqual,), cst.NotEqual: (cst.Equal,), cst.Is: (cst.IsNot,), cst.IsNot: (cst.Is,),
    cst.In: (cst.NotIn,), cst.NotIn: (cst.In,), cst.And: (cst.Or,), cst.Or: (cst.And,),
    cst.Add: (cst.Subtract,), cst.Subtract: (cst.Add,), cst.Multiply: (cst.Divide,), cst.Divide: (cst.Multiply,),
    cst.FloorDivide: (cst.Multiply,), cst.Modulo: (cst.FloorDivide,), cst.Power: (cst.Multiply,),
    cst.BitAnd: (cst.BitOr,), cst.BitOr: (cst.BitAnd,), cst.BitXor: (cst.BitAnd,),
    cst.LeftShift: (cst.RightShift,), cst.RightShift: (cst.LeftShift,),
    cst.AddAssign: (cst.SubtractAssign,), cst.SubtractAssign: (cst.AddAssign,),
    cst.MultiplyAssign: (cst.DivideAssign,), cst.DivideAssign: (cst.MultiplyAssign,),
    cst.BitAndAssign: (cst.BitOrAssign,), cst.BitOrAssign: (cst.BitAndAssign,),
}  # fmt: skip
_OPPOSITE = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}
_FIXED = {"cast", "isinstance", "issubclass", "getattr", "hasattr", "setattr"}  # other arguments only raise


def _operators(node: Any) -> Iterator[cst.CSTNode]:
    """Yield a comparison, a calculation or a boolean expression with other operators."""
    if isinstance(node, cst.BinaryOperation) and (_is_text(node.left) or _is_text(node.right)):
        return
    for other in _OTHERS.get(type(node.operator), ()):
        yield node.with_changes(operator=other())


def _constant(node: cst.Name) -> Iterator[cst.CSTNode]:
    """Yield the other boolean."""
    if node.value in {"True", "False"}:
        yield node.with_changes(value=str(node.value == "False"))


def _operand(node: cst.UnaryOperation) -> Iterator[cst.CSTNode]:
    """Yield what is negated."""
    yield _enclosed(node.expression)


def _negated(node: Any) -> Iterator[cst.CSTNode]:
    """Yield a statement or an expression with its condition negated, unless another change does nearly the same."""
    test = node.test
    if not isinstance(test, cst.Comparison | cst.BooleanOperation | cst.UnaryOperation):
        inner = _enclosed(test)
        fields = {"whitespace_before_test": cst.SimpleWhitespace(" ")} if isinstance(node, cst.If | cst.While) else {}
        yield node.with_changes(test=cst.UnaryOperation(cst.Not(), inner), **fields)


def _nothing(node: cst.Return) -> Iterator[cst.CSTNode]:
    """Yield a return of None instead of a value."""
    value = node.value
    is_fixed = isinstance(value, cst.Name) and value.value in {"None", "True", "False"}
    if value is not None and not is_fixed and not isinstance(value, cst.BaseNumber | cst.BaseString):
        yield node.with_changes(value=cst.Name("None"))


def _arguments(node: cst.Call) -> Iterator[cst.CSTNode]:
    """Yield a call with two arguments exchanged, or without one; min, max, any and all also as their opposite."""
    name = getattr(getattr(node.func, "attr", node.func), "value", "")
    places = [place for place, each in enumerate(node.args) if each.keyword is None]
    is_plain = not any(node.args[place].star for place in places)
    if name in _OPPOSITE:
        inner = cst.Name(_OPPOSITE[name])
        yield node.with_changes(
            func=node.func.with_changes(attr=inner) if isinstance(node.func, cst.Attribute) else inner
        )
        if is_plain and len(places) > 1:
            yield from (_enclosed(node.args[place].value) for place in places)
    elif is_plain and name not in _FIXED and len(places) > 1:
        for one, two in pairwise(places):
            args = list(node.args)
            args[one], args[two] = (
                args[one].with_changes(value=args[two].value), args[two].with_changes(value=args[one].value)
            )  # fmt: skip
            yield node.with_changes(args=args)
        yield node.with_changes(args=[each for place, each in enumerate(node.args) if place != places[-1]])
    for each in node.args:
        if each.keyword is not None and not _is_check(each) and not _is_text(each.value):
            yield node.with_changes(args=[other for other in node.args if other is not each])


OPERATORS: list[tuple[Any, Any]] = [
    ((cst.ComparisonTarget, cst.BinaryOperation, cst.BooleanOperation, cst.AugAssign), _operators),
    (cst.Name, _constant), (cst.UnaryOperation, _operand), (cst.Return, _nothing), (cst.Call, _arguments),
    ((cst.If, cst.IfExp, cst.CompIf), _negated),
]  # fmt: skip


def _enclosed(node: cst.BaseExpression) -> cst.BaseExpression:
    """Return an expression in parentheses, unless it is a name."""
    return node if isinstance(node, cst.Name) else node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def _is_check(node: cst.Arg) -> bool:
    """Return whether an argument only lets zip check that the lengths are equal."""
    return node.keyword is not None and node.keyword.value == "strict"


def _is_text(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.BaseString)


def _code(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)


class Visitor(file_mutation.MutationVisitor):
    """Finder of the changes of a module."""

    def _skip_node_and_children(self, node: cst.CSTNode) -> bool:
        match node:
            case cst.FunctionDef():
                return bool(_SHARED_NAME.search("".join(map(_code, node.decorators))))
            case cst.Raise() | cst.FormattedString() | cst.Param():
                return True
            case cst.Call():
                return bool(_SILENT.search(_code(node.func))) or super()._skip_node_and_children(node)
            case cst.AugAssign():
                return bool(_SILENT.search(_code(node.target)))
            case cst.Arg():
                return _is_check(node) or super()._skip_node_and_children(node)
        return super()._skip_node_and_children(node)

    def _create_mutations(self, node: cst.CSTNode) -> None:
        function = self.get_metadata(file_mutation.OuterFunctionProvider, node, None)
        if isinstance(node, cst.FunctionDef) and function is node:
            body = node.body.body
            first = body[1 if node.get_docstring() is not None and len(body) > 1 else 0]
            planted = cst.parse_statement("raise AssertionError('planted')")
            if isinstance(first, cst.SimpleStatementLine | cst.BaseCompoundStatement):
                both: Any = cst.FlattenSentinel([planted, first])  # an inner function may name what `first` assigns
                self.mutations.append(file_mutation.Mutation(first, both, node))
        elif function is not None:
            super()._create_mutations(node)


_arrangement = file_mutation.function_trampoline_arrangement


def arranged(function: cst.FunctionDef, mutants: Iterable[Any], class_name: str | None) -> tuple[Any, ...]:
    """Return mutmut's functions for the mutants of a function, of which only the one that calls them is decorated."""
    if not function.decorators or {_code(each.decorator) for each in function.decorators} <= {
        "staticmethod",
        "classmethod",
    }:
        return _arrangement(function, mutants, class_name)
    first, functions, last, names = _arrangement(function.with_changes(decorators=[]), mutants, class_name)
    outer: Any = functions[0]
    outer = outer.with_changes(decorators=[*function.decorators, *outer.decorators])
    return first, [outer, *functions[1:]], last, names


class Runner(PytestRunner):
    """Runner of tests that leaves out those that fail without a mutant, and measures processor time, not wall time."""

    def run_tests(self, *, mutant_name: str | None, tests: Iterable[str]) -> int:
        """Run tests; if pytest cannot be run, that kills no mutant."""
        try:
            return super().run_tests(mutant_name=mutant_name, tests=tests)
        except BaseException:  # noqa: BLE001  it ends this process, with the status of a killed mutant
            return _CANNOT_RUN

    def execute_pytest(self, params: list[str], **kwargs: Any) -> int:
        """Run pytest, for the statistics with all tests."""
        if "plugins" not in kwargs:
            return super().execute_pytest(params, **kwargs)
        failed: set[str] = set()
        begin: dict[str, float] = {}

        class Outcomes:
            @staticmethod
            def pytest_runtest_logstart(nodeid: str) -> None:
                begin[nodeid] = process_time()

            @staticmethod
            def pytest_runtest_logreport(report: Any) -> None:
                state().duration_by_test[report.nodeid] = process_time() - begin[report.nodeid]
                if report.failed:
                    failed.add(report.nodeid)

        status = super().execute_pytest(
            [each for each in params if each != "-x"], plugins=[*kwargs["plugins"], Outcomes()]
        )
        for tests in state().tests_by_mangled_function_name.values():
            tests.difference_update(failed)
        if failed:
            print(f"left out, since they fail without a mutant: {', '.join(sorted(failed))}", file=sys.__stdout__)
        return 0 if status in {0, 1} else status


@dataclass(frozen=True)
class Group:
    """A group of modules.

    Attributes:
        modules: patterns of its modules; those of an earlier group are left out.
        percent: least share of killed mutants.
        draw: number of mutants that are drawn; 0 for all.
        seed: seed of the draw.
    """

    modules: tuple[str, ...]
    percent: float
    draw: int = 0
    seed: int = 0

    def drawn(self, names: Iterable[str]) -> list[str]:
        """Return the drawn mutants. Each has a lot of its own, so a change of one function changes no other's draw."""
        lots = {name: hashlib.sha256(f"{self.seed} {name}".encode()).digest() for name in names}
        chosen = set(sorted(lots, key=lots.__getitem__)[: self.draw or None])
        return [name for name in lots if name in chosen]


def read_groups(root: Path = ROOT) -> tuple[dict[str, tuple[Group, list[str]]], dict[str, str]]:
    """Return the groups with their modules, by name, and the reasons of equivalent mutants, by function and change."""
    read = tomllib.loads((root / "tools/mutants.toml").read_text(encoding="utf-8"))
    taken: set[str] = set()
    found = {}
    for name, fields in read["groups"].items():
        paths = [
            path.relative_to(root).as_posix()
            for pattern in fields["modules"] for path in sorted(root.glob(pattern)) if path.suffix == ".py"
        ]  # fmt: skip
        found[name] = (
            Group(**{**fields, "modules": tuple(fields["modules"])}),
            [path for path in dict.fromkeys(paths) if path not in taken],
        )
        taken.update(paths)
    return found, read.get("equivalent", {})


def find_test_files(modules: Iterable[str]) -> list[str]:
    """Return the test files that import one of the modules, or a file of tests/support that imports one."""
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for folder in ("support", "runtime", "watcher", "scoring", "client", "trimaran")
        for path in sorted((ROOT / "tests" / folder).rglob("*.py"))
    }
    wanted = [_importing(each.removesuffix(".py").removesuffix("/__init__").replace("/", ".")) for each in modules]
    found: set[str] = set()
    while wanted:
        added = {path for path, text in texts.items() if path not in found and re.search("|".join(wanted), text)}
        found |= added
        wanted = [rf"\bsupport\.{Path(path).stem}\b" for path in added if path.startswith("tests/support/")]
    return sorted(path for path in found if Path(path).name.startswith("test_"))


def _importing(module: str) -> str:
    """Return the pattern of a file that imports a module."""
    package, _, name = module.rpartition(".")
    return rf"{package}\.{name}\b|from {package} import [^\n]*\b{name}\b"


def _prepare(modules: list[str], tests: list[str]) -> None:
    """Make the mutants, and find the tests of each function, unless neither tests nor modules have changed."""
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.split()
    sources = set(map(str, configuration.config().source_paths))
    configuration._config = replace(
        configuration.config(), only_mutate=modules, pytest_add_cli_args_test_selection=tests,
        also_copy=[Path(name) for name in sorted({each.partition("/")[0] for each in listed} - sources)],
    )  # fmt: skip
    for each in (Path("mutants") / module for module in modules):
        if each.exists() and "_mutmut_mutated" not in each.read_text(encoding="utf-8"):
            each.unlink()  # mutmut takes the copy that a run of another group has left for one with mutants
    with mutmut.CatchOutput():
        mutmut.copy_src_dir()
        mutmut.copy_also_copy_files()
        mutmut.create_mutants(1)
    mutmut.setup_source_paths()
    os.environ["PYTHONPATH"] = str(Path("mutants").absolute())  # of the processes that tests start


def _find_tests(runner: ForkRunner, modules: list[str], tests: list[str]) -> None:
    """Find the tests that reach each function; after a change of tests or modules survivors have no result any more."""
    digest = hashlib.sha256(b"".join(Path(each).read_bytes() for each in (*tests, *modules))).hexdigest()
    known = Path("mutants/tests.sha256")
    if known.exists() and known.read_text() == digest and mutmut.load_stats():
        with mutmut.CatchOutput():
            runner.list_all_tests()  # so that the forked processes have imported the tests
        return
    print(f"running {len(tests)} files of tests without a mutant", flush=True)
    set_mutant_under_test("stats")
    with mutmut.CatchOutput() as output:
        status = runner.collect_stats([])
    if status:
        output.dump_output()
        raise SystemExit("the tests cannot be run")
    mutmut._reset_mutant_results(lambda _name, status: status_by_exit_code[status] != "killed")
    save_stats()
    known.write_text(digest)


def _end_waiting(runner: ForkRunner) -> None:
    """End each mutant that waits for ever.

    mutmut itself signals the number that the process had, also long after its end: it killed other programs.
    """
    while True:
        sleep(5)
        for pid, worker in list(runner._running.items()):
            if datetime.now() - worker.start_time > _LONGEST:  # noqa: DTZ005  as mutmut's
                with suppress(ProcessLookupError):  # it has just ended
                    os.kill(pid, signal.SIGXCPU)


def _run(names: list[str], jobs: int, modules: list[str], tests: list[str]) -> None:
    """Run the mutants that have no result, after tests of each module without and with a planted one."""
    runner = ForkRunner(jobs, Runner())
    isolation.register_timeout = lambda **_: None
    Thread(target=_end_waiting, args=[runner], name="waiting", daemon=True).start()
    _find_tests(runner, modules, tests)
    data = {name: each for each in _results(modules) for name in each.exit_code_by_key}
    set_mutant_under_test("")
    runner.startup()
    left_out = _modules_to_leave_out(runner, names, data)
    left = [
        name for name in names
        if data[name].exit_code_by_key[name] is None and data[name].path not in left_out
    ]  # fmt: skip
    for number, name in enumerate(left, 1):
        while not runner.has_capacity():
            _take(runner, data)
        print(f"{number}/{len(left)} {name}", flush=True)
        _submit(runner, name)
    while runner.pending_count():
        _take(runner, data)


def _modules_to_leave_out(runner: ForkRunner, names: list[str], data: dict[str, SourceFileMutationData]) -> set[Path]:
    """Run tests of each module without and with a planted mutant; return the modules whose tests notice none.

    Mutants of these modules count as not killed.
    """
    checked, doubtful, tried = set(), dict[Path, str](), set()
    for name in names:
        path, function = data[name].path, mangled_name_from_mutant_name(name)
        if path in checked or function in tried or not _tests_of_function(name):
            continue
        tried.add(function)
        _submit(runner, f"{function}__mutmut_0", 0.0)
        if runner.wait_for_result().exit_code != 0:
            raise SystemExit(f"the tests of {function} fail without a mutant")
        _submit(runner, function + PLANTED)
        if runner.wait_for_result().exit_code == 1:
            checked.add(path)
        else:
            doubtful[path] = function
    left_out = doubtful.keys() - checked
    for path in left_out:
        print(f"left out, since the tests of {doubtful[path]} pass with a planted mutant: {path}", flush=True)
    return left_out


def _tests_of_function(name: str) -> list[str]:
    """Return the tests that reach a mutant's function: those of files that import its module, then the quick ones."""
    function = mangled_name_from_mutant_name(name)
    found = state().tests_by_mangled_function_name.get(function, set())
    module, durations = function.rpartition(".")[0], state().duration_by_test
    return sorted(found, key=lambda test: (not _imports(test.partition("::")[0], module), durations[test]))


@cache
def _imports(test_file: str, module: str) -> bool:
    return re.search(_importing(module), Path(test_file).read_text(encoding="utf-8")) is not None


def _submit(runner: ForkRunner, name: str, most_seconds: float = _MOST_SECONDS) -> None:
    """Start a process that runs the tests of a mutant's function, the quick ones, for some seconds."""
    chosen: list[str] = []
    seconds = 0.0
    for test in _tests_of_function(name):
        if not chosen or seconds < most_seconds:
            chosen.append(test)
            seconds += state().duration_by_test[test]
    runner.submit(name, chosen, ceil(10 + 3 * seconds), seconds)


def _take(runner: ForkRunner, data: dict[str, SourceFileMutationData]) -> None:
    result = runner.wait_for_result()
    mutmut._register_mutant_result(result, data)
    if (status := status_by_exit_code[result.exit_code]) != "killed":
        print(f"    {status}: {result.mutant_name}", flush=True)


def _results(modules: Iterable[str]) -> Iterator[SourceFileMutationData]:
    for path in modules:
        results = SourceFileMutationData(path=Path(path))
        results.load()
        yield results


def _change(name: str, path: Path) -> tuple[str, str]:
    """Return the function and the change of a mutant, as the table and tools/mutants.toml have them."""
    lines = get_diff_for_mutant(name, path=path).splitlines()[2:]
    parts = [" ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+"]
    function = mangled_name_from_mutant_name(name).rpartition(".")[2].removeprefix("x").strip("_ǁ").replace("ǁ", ".")
    return f"{path.with_suffix('').as_posix().replace('/', '.')}.{function}", " -> ".join(parts)


def table(names: list[str], modules: list[str], equivalent: dict[str, Any]) -> tuple[str, float]:
    """Return the numbers of mutants by module and result, with each survivor, and the share of the killed, percent."""
    rows = ["| module | mutants | killed | survived | timed out | other | killed, % |", "|---|---|---|---|---|---|---|"]
    by_module: dict[str, Counter[str]] = defaultdict(Counter)
    survivors, wanted = [], set(names)
    for results in _results(modules):
        for name, status in results.exit_code_by_key.items():
            if name in wanted:
                outcome = status_by_exit_code[status]
                by_module[str(results.path)][outcome] += 1
                if outcome != "killed":
                    function, change = _change(name, Path(results.path))
                    reason = equivalent.get(function, {}).get(change, outcome.replace("survived", ""))
                    survivors.append(f"| {function} | `{change}` | {reason} |")
    by_module["all"] = sum(by_module.values(), Counter())
    for path, counts in by_module.items():
        figures = [counts.total(), counts["killed"], counts["survived"] + counts["no tests"], counts["timeout"]]
        share = 100 * figures[1] / max(figures[0], 1)
        rows.append(f"| {path} | {' | '.join(map(str, figures))} | {figures[0] - sum(figures[1:])} | {share:.1f} |")
    return "\n".join([*rows, "", "| function | change | |", "|---|---|---|", *survivors]), share


def main() -> int:
    """Run the mutants that are left, print the table; return 1 where too few mutants of the group are killed."""
    groups, equivalent = read_groups()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("group", choices=groups)
    parser.add_argument("modules", nargs="*", help="these modules only")
    parser.add_argument("--tests", default="", help="these files of tests only")
    parser.add_argument("--jobs", type=int, default=1, help="number of mutants at once")
    parser.add_argument("--table", action="store_true", help="show the results so far only")
    arguments = parser.parse_args()
    group, modules = groups[arguments.group]
    os.chdir(ROOT)
    file_mutation.mutation_operators = OPERATORS
    file_mutation.MutationVisitor = Visitor
    file_mutation.function_trampoline_arrangement = arranged
    chosen = arguments.modules or modules
    tests = arguments.tests.split() or find_test_files(chosen)
    configuration._config = replace(configuration.config(), only_mutate=modules)
    if not arguments.table:
        _prepare(modules, tests)
    everything = [name for each in _results(modules) for name in each.exit_code_by_key if not name.endswith(PLANTED)]
    dotted = tuple(f"{each.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}.x" for each in chosen)
    names = [name for name in group.drawn(everything) if name.startswith(dotted)]
    if not arguments.table:
        _run(names, arguments.jobs, chosen, tests)
    text, share = table(names, chosen, equivalent)
    print(text)
    return 0 if share >= group.percent else 1


if __name__ == "__main__":
    sys.exit(main())
