"""The guard fails the test or fixture that leaves something, names it and its place, and nobody else."""

import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from support.inventory import take
from support.origins import Origins
from support.waiting import wait_until

from watcher.testing import reply, serving

TESTS = Path(__file__).parents[1]
#: Leaks, each the body of a test, with what the guard says about it.
LEAKS = {
    "thread": ("threading.Thread(target=EVER.wait, name='lost', daemon=True).start()", r"thread 'lost', started at"),
    "child": ("KEPT.append(subprocess.Popen(['sleep', '3']))", r"child process \d+ \(sleep 3\), started at"),
    "not_waited_for": (
        "KEPT.append(subprocess.Popen(['true'])); KEPT[-1].stdin", r"child process \d+ \(ended, but nobody waited",
    ),
    "orphan": ("subprocess.run('sleep 4 &', shell=True)", r"child process \d+ \(sleep 4\), started at a fork"),
    "socket": ("KEPT.append(socket.create_server(('127.0.0.1', 0)))", r"listening socket \('127.0.0.1', \d+\)"),
    "descriptor": ("KEPT.append(open('/etc/hosts'))", r"descriptor \d+ \(/etc/hosts\), opened at"),
    "garbage": ("cycle = [open('/etc/hosts')]; cycle.append(cycle)", r"garbage: unclosed file .*/etc/hosts"),
    "pipe": ("KEPT.append(os.pipe())", r"descriptor \d+ \(pipe:"),
    "file": ("open('here.txt', 'w').close()", r"file \S*/here.txt, created at"),
    "folder": ("os.mkdir('there')", r"file \S*/there, created at"),
    "database": ("sqlite3.connect('base.db').close()", r"file \S*/base.db, created at"),
    "temporary_file": ("os.close(tempfile.mkstemp()[0])", r"temporary file \S+"),
    "temporary_file_of_a_child": ("subprocess.run(['mktemp'], stdout=subprocess.DEVNULL)", r"temporary file \S+"),
    "signal": ("signal.signal(signal.SIGUSR1, lambda *_: None)", r"signal handler of SIGUSR1: .*<lambda> at \S+:\d+"),
    "variable": ("os.environ['LEFT'] = '1'", r"environment variable LEFT$"),
    "unset_variable": ("del os.environ['KEPT']", r"environment variable KEPT, which is no longer set"),
    "handler": ("logging.getLogger('a.b').addHandler(logging.StreamHandler())", r"logging handler .* of logger 'a\.b'"),
    "random": ("random.random()", r"state of the global generator of random:"),
    "numpy_random": ("np.random.seed(1)", r"state of the global generator of numpy.random:"),
}  # fmt: skip
HEAD = """
import atexit, logging, os, random, signal, socket, sqlite3, subprocess, tempfile, threading, time
import numpy as np
import pytest
from support import leaks
leaks.PATIENCE_SECONDS = 0.3
KEPT, EVER = [], threading.Event()
"""
#: A server that no test or fixture ends; it does not answer for what others leave meanwhile.
SESSION_SERVER = """
def test_starts_server():
    with leaks.kept_by_session("server"):
        KEPT.append(subprocess.Popen(["sleep", "60"]))
    atexit.register(KEPT[0].kill)

"""
FIXTURES = """
@pytest.fixture(scope="module")
def held():
    stop = threading.Event()
    thread = threading.Thread(target=lambda: serve(stop), name="server")
    thread.start()
    os.environ["HELD"] = "1"
    yield
    stop.set(); thread.join(); del os.environ["HELD"]

def serve(stop):  # as a server does, it starts a thread that outlives the test
    while not stop.wait(0.02):
        thread = threading.Thread(target=stop.wait)
        thread.start()
    thread.join()

@pytest.fixture(scope="module")
def skipping():
    threading.Thread(target=EVER.wait, name="lost", daemon=True).start()
    pytest.skip("no server")

@pytest.fixture(scope="module")
def leaving():
    yield threading.Thread(target=EVER.wait, name="lost", daemon=True).start()

def test_held(held): time.sleep(0.1)
def test_held_again(held): pass
def test_half_way(skipping): pass
def test_half_way_again(skipping): pass
def test_ends_by_itself(): threading.Thread(target=time.sleep, args=(0.1,)).start()
def test_at_its_end(leaving): pass
"""


def run_tests(folder: Path, text: str) -> str:
    """Run a module of tests with the guard; return pytest's output."""
    (folder / "test_planted.py").write_text(HEAD + text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "support.leak_guard",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-p",
        "no:dash",
    ]
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "KEPT": "1"}
    command += ["-rA", "--tb=short", "-W", "error", "test_planted.py", "--basetemp", str(folder / "base")]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    ).stdout


def test_each_leak_fails_its_own_test(tmp_path: Path) -> None:
    """Each kind of leak is an error of the test that left it, and the test after it passes."""
    planted = (f"def test_{name}(): {body}\ndef test_after_{name}(): pass\n" for name, (body, _) in LEAKS.items())
    output = run_tests(tmp_path, SESSION_SERVER + "\n".join(planted))
    errors = re.findall(r"^ERROR test_planted.py::test_(\w+)", output, re.MULTILINE)
    assert sorted(errors) == sorted(LEAKS), output
    for name, (_, message) in LEAKS.items():
        text = output.partition(f"ERROR at teardown of test_{name} _")[2].partition("____ ")[0]
        assert re.search(f"^E? *{message}|^ *{message}", text, re.MULTILINE), (name, text)
    assert f"{2 * len(LEAKS) + 1} passed, {len(LEAKS)} errors" in output


def test_a_wider_fixture_answers_for_what_it_holds(tmp_path: Path) -> None:
    """A module's fixture, and no test, answers for its own things: at its end, and at once if it skips."""
    output = run_tests(tmp_path, FIXTURES)
    assert "4 passed, 1 skipped, 2 errors" in output, output
    assert re.findall(r"^ERROR test_planted.py::(\w+)", output, re.MULTILINE) == ["test_half_way", "test_at_its_end"]
    assert "fixture 'skipping' of test_planted.py failed or skipped (no server), and left behind:" in output
    assert "fixture 'leaving' of test_planted.py left behind:" in output
    assert len(re.findall(r"fixture .* left behind:\nE +thread 'lost', started at", output)) == 2


def test_another_thread_may_start_things_while_the_guard_looks(tmp_path: Path) -> None:
    """Sockets and files that another thread opens during an inventory do not disturb it."""
    code = f"""
import os, socket, sys, threading
sys.path[:0] = [{str(TESTS.parent)!r}, {str(TESTS)!r}]
from support.inventory import take
from support.origins import Origins
sys.setswitchinterval(1e-6)
origins = Origins()
origins.install()
kept = [socket.socket() for _ in range(300)]

def start() -> None:
    number = 0
    while True:
        number += 1
        socket.socket().close()
        os.close(os.open("{tmp_path}/" + str(number), os.O_CREAT))

threading.Thread(target=start, daemon=True).start()
for _ in range(300):
    take(origins)
    origins.socket(-2)
    origins.forget()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_guard_costs_less_than_a_millisecond_a_test(tmp_path: Path) -> None:
    """An inventory takes at most 1 ms of processor time."""
    origins = Origins(tmp_path)
    least = float("inf")
    for _ in range(5):
        start = time.process_time()
        for _ in range(50):
            take(origins)
        least = min(least, (time.process_time() - start) / 50)
    assert least < 1e-3


def test_a_silent_connection_ends_with_its_server() -> None:
    """A stranger that sends half a request, and stays, keeps no thread of a server that is closed."""

    def handling() -> list[threading.Thread]:
        return [each for each in threading.enumerate() if "process_request_thread" in each.name]

    with socket.socket() as silent:
        with serving(lambda handler: reply(handler, {})) as fake:
            silent.connect(fake.server.server_address[:2])
            silent.sendall(b"GET / HT")
            wait_until(handling, "the server has a thread for the connection")
        wait_until(lambda: not handling(), "the thread ends")
