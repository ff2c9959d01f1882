"""Attack the running service; check that its worker survives and that other clients are served.

    python tests/soak/attacks.py [--seconds 25] [--connections 1000] [--most-seconds SECONDS]

Each attack has its own service and its own process, while another client requests ``/watcher`` on new connections.
The script prints the deaths of the worker, and the failures and the latency of the client's requests.
"""

import argparse
import math
import os
import random
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import requests

sys.path.insert(0, str(Path(__file__).parent.parent))
from support.servers import Service

HEAD = b"GET /watcher HTTP/1.1\r\nHost: x\r\n"
REQUEST = HEAD + b"\r\n"
CHUNKED = b"POST /watcher HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
#: Pieces that each client sends in order; the last piece is repeated.
ATTACKS = {
    "heads line by line": [b"GET /watcher HTTP/1.1\r\n", b"Host: x\r\n", b"X-Slow: yes\r\n"],
    "heads line by line, ended": [b"GET /livez HTTP/1.1\r\n", b"Host: x\r\n", b"X: y\r\n", b"X: y\r\n", b"\r\n"],
    "blank lines only": [b"\r\n"],
    "whole requests, many at once": [REQUEST * 20],
    "bodies byte by byte": [b"POST /watcher HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n", b"x"],
    "chunks of one byte": [CHUNKED, b"1\r\nx\r\n" * 50],
    "bytes that are not requests": [b"\x16\x03\x01\x02\x00", b"\x00\xff" * 100],
    "nothing": [b""],
}


def attack(port: int, name: str, connections: int, seconds: float) -> None:
    """Send the pieces of an attack over many connections; replace each closed connection."""
    pieces, random_ = ATTACKS[name], random.Random(903)
    end = time.monotonic() + seconds
    sent: dict[socket.socket, int] = {}
    while time.monotonic() < end:
        while len(sent) < connections:
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", port))
            sent[client] = 0
        for client in random_.sample(list(sent), len(sent) // 4):
            try:
                client.send(pieces[min(sent[client], len(pieces) - 1)])
                sent[client] += 1
                while client.recv(65536):
                    pass
            except BlockingIOError:
                continue
            except OSError:
                pass
            del sent[client]
            client.close()
        time.sleep(0.01)


def judge(name: str, connections: int, seconds: float, files: int | None) -> bool:
    """Run one attack, print its results, and return whether the worker survived and every request was served."""
    with tempfile.TemporaryDirectory() as folder:
        store, log = Path(folder) / "s.sqlite", Path(folder) / "log"
        service = Service(store, log, "--provider", "Fake", open_files=files)
        try:
            service.wait_for("/watcher")
            port = service.url.rpartition(":")[2]
            command = [sys.executable, __file__, "--attack", name, "--port", port]
            attacker = subprocess.Popen([*command, "--connections", str(connections), "--seconds", str(seconds)])
            workers, times, failed = [service.workers()[0]], [], 0
            while attacker.poll() is None:
                start = time.monotonic()
                try:
                    failed += requests.get(f"{service.url}/watcher", timeout=60).status_code != 200
                except requests.RequestException:
                    failed += 1
                times.append(time.monotonic() - start)
                workers += [pid for pid in service.workers() if pid not in workers]
                time.sleep(0.05)
        finally:
            os.killpg(service.process.pid, signal.SIGKILL)
            service.process.wait()
    deaths = len(workers) - 1
    print(
        f"{name:>28}{'' if files is None else f', {files} files'} | {deaths} deaths | {failed} of {len(times)} failed "
        f"| p50 {1000 * statistics.median(times):.0f} ms, most {max(times):.2f} s",
        flush=True,
    )
    return not deaths and not failed


def runs(connections: int) -> Iterator[tuple[str, int, int | None]]:
    """Yield the attacks: name, number of connections, and the service's limit of open files."""
    for name in ATTACKS:
        yield name, connections, None
    yield "nothing", 200, 96
    yield "whole requests, many at once", 200, 96


def main() -> None:
    """Run all attacks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=25)
    parser.add_argument("--most-seconds", type=float, default=math.inf, help="of all attacks; default: %(default)s")
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.attack:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 65536), most))
        attack(arguments.port, arguments.attack, arguments.connections, arguments.seconds)
        return
    planned = list(runs(arguments.connections))
    seconds = min(arguments.seconds, arguments.most_seconds / len(planned) / 2)  # a start takes the other half
    served = [judge(name, many, seconds, files) for name, many, files in planned]
    sys.exit(0 if all(served) else "the service suffered: see above")


if __name__ == "__main__":
    main()
