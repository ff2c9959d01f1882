"""Starts of a watcher in a new interpreter while busy clients request it, as after a restart in a cluster."""

import http.client
import threading
import time
from collections import Counter
from pathlib import Path

from support.servers import Service

from watcher.wire import COLUMNS_TYPE

#: Requests of the clients in turn, with the status of the response: as sent by Go, our client, browsers and Prometheus.
REQUESTS: tuple[tuple[str, dict[str, str], int], ...] = (
    ("/compat/watcher", {"Accept-Encoding": "gzip"}, 200),
    ("/watcher", {"Accept-Encoding": "gzip, deflate", "Accept": f"{COLUMNS_TYPE}, application/json;q=0.5"}, 200),
    ("/watcher", {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8", "Accept-Encoding": "br, gzip;q=0.5"}, 200),
    ("/watcher", {"If-None-Match": '"other"'}, 200),
    ("/metrics/nodes", {"Accept-Encoding": "gzip"}, 200),
    ("/history", {"Accept-Encoding": "gzip"}, 200),
    ("/readyz", {}, 200),
    ("/watcher/no-such-node", {}, 404),
)


class Clients:
    """Busy clients of one start, each in a thread with a connection of its own.

    Attributes:
        answers: number of answers by path and status.
        errors: the first line of each unexpected answer.
    """

    def __init__(self, port: int, count: int) -> None:
        self.answers: Counter[tuple[str, int]] = Counter()
        self.errors: list[str] = []
        self._port = port
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let each client end after its current request."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(30)

    def _run(self, number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
        while not self._stopped.is_set():
            path, headers, expected = REQUESTS[number % len(REQUESTS)]
            try:
                connection.request("GET", path, headers={"Connection": "keep-alive", **headers})
                response = connection.getresponse()
                body = response.read()
            except ConnectionRefusedError:  # the port is not open yet
                connection.close()
                time.sleep(0.01)
                continue
            except (OSError, http.client.HTTPException) as error:
                self.errors.append(f"{path}: {error!r}")
                connection.close()
            else:
                self.answers[path, response.status] += 1
                if response.status != expected:
                    self.errors.append(f"{path}: {response.status} {body[:200]!r}")
            number += 1
        connection.close()


def start_once(folder: Path, readers: int, seconds: float) -> tuple[list[str], Counter[tuple[str, int]]]:
    """Start a watcher under its clients; return its errors, and the number of answers by path and status."""
    (folder / "log").unlink(missing_ok=True)
    service = Service(folder / "s.sqlite", folder / "log", "--provider", "Fake", cold=True)
    try:
        clients = Clients(service.port, readers)
        service.wait_for("/watcher")
        time.sleep(seconds)
        clients.stop()
        statuses = {
            path: service.get(path).status_code for path in ("/compat/watcher", "/watcher", "/livez", "/readyz")
        }
    finally:
        service.kill()
    errors = clients.errors + [f"at the end, {path}: {status}" for path, status in statuses.items() if status != 200]
    if "Traceback" in (log := (folder / "log").read_text()):
        errors.append(f"the log: {log[log.index('Traceback') :][:3000]}")
    return errors, clients.answers
