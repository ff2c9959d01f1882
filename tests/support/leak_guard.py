"""Plugin of pytest that fails a test or fixture that leaves something behind, instead of a later test.

After each test :mod:`support.leaks` compares threads, child processes, sockets and other descriptors, files outside of
tmp_path, signal handlers, environment variables, logging handlers, and the state of the global random generators.

No package does this: pytest warns of threads and files only when an exception or the garbage collector shows them.
"""

import contextlib
import ctypes
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.leaks import Leak, LeakGuard, installed, listing
from support.origins import Origins

_FOLDER = pytest.StashKey[Path]()
_PR_SET_CHILD_SUBREAPER = 36


def pytest_configure(config: pytest.Config) -> None:
    """Give this process a temporary folder of its own, so that other processes do not count for its tests."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        folder = Path(tempfile.mkdtemp(prefix="tests-"))
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        config.stash[_FOLDER] = folder


@pytest.fixture(scope="session", autouse=True)
def _guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Start the guard; a fixture, so that the folder of tmp_path is there."""
    base = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        folder = request.config.stash[_FOLDER]
        patch.setattr(tempfile, "tempdir", str(folder))
        patch.setenv("TMPDIR", str(folder))
        # What a killed service leaves becomes a child of this process, and is seen.
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        origins = Origins(base, folder)
        origins.install()
        installed.append(LeakGuard(origins))
        yield
        installed.clear()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(
    fixturedef: "pytest.FixtureDef[Any]", request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Let a fixture of a wider scope hold what it starts."""
    if fixturedef.scope == "function" or not installed:
        return (yield)
    try:
        with installed[0].holding(fixturedef):
            return (yield)
    except Leak as leak:
        pytest.fail(f"fixture {_name(fixturedef)} {leak}")


def pytest_fixture_post_finalizer(fixturedef: "pytest.FixtureDef[Any]") -> None:
    """Fail the teardown in which a wider fixture has left what it held."""
    for guard in installed:
        if lines := guard.check_fixture(fixturedef):
            pytest.fail(listing(f"fixture {_name(fixturedef)}", lines))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Generator[None, Any, Any]:
    """Fail a test that has left something."""
    try:
        result = yield
    except BaseException as error:
        if lines := _left_by_test():
            error.add_note(listing("the test has also", lines))
        raise
    if lines := _left_by_test():
        pytest.fail(listing("the test has", lines), pytrace=False)
    return result


def _left_by_test() -> list[str]:
    return [line for guard in installed for line in guard.check_test()]


def _name(fixturedef: "pytest.FixtureDef[Any]") -> str:
    return f"{fixturedef.argname!r} of {Path(fixturedef.func.__code__.co_filename).name}"
