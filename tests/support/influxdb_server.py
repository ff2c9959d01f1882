"""A real InfluxDB 1.x (Debian's influxd) on loopback for one test, with an empty database."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests
from control_plane.processes import Process
from support.ports import start_on_free_ports
from support.servers import need_server

#: Key that signs JSON web tokens.
SHARED_SECRET = "shared between influxd and who signs tokens"

_CONFIG = """
reporting-disabled = true
bind-address = "127.0.0.1:{backup}"
[meta]
  dir = "{folder}/meta"
[data]
  dir = "{folder}/data"
  wal-dir = "{folder}/wal"
  query-log-enabled = false
[http]
  bind-address = "127.0.0.1:{port}"
  auth-enabled = {auth}
  shared-secret = "{secret}"
  max-row-limit = {max_rows}
  log-enabled = false
[monitor]
  store-enabled = false
"""


@dataclass(frozen=True)
class InfluxDb:
    """A running server. ``user`` and ``password`` are the administrator's if authentication is on."""

    url: str
    process: Process
    user: str = ""
    password: str = ""

    def stop(self) -> None:
        """Stop the server."""
        self.process.terminate()

    def run(self, statement: str) -> None:
        """Run a statement that changes the server's state."""
        self._post("/query", {"q": statement})

    def write(
        self, lines: Iterable[str], database: str = "telegraf", retention_policy: str = "", precision: str = "s"
    ) -> None:
        """Write lines of line protocol; timestamps are in seconds by default."""
        params = {"db": database, "precision": precision, "rp": retention_policy}
        self._post("/write", "\n".join(lines).encode(), params)

    def _post(self, path: str, data: bytes | Mapping[str, str], params: Mapping[str, str] | None = None) -> None:
        auth = (self.user, self.password) if self.user else None
        response = requests.post(self.url + path, data=data, params=params, auth=auth, timeout=60)
        assert response.status_code < 300, response.text
        assert "error" not in response.text, response.text


@contextmanager
def run_influxdb(folder: Path, *, user: str = "", password: str = "", max_rows: int = 0) -> Iterator[InfluxDb]:
    """Run a server with the database ``telegraf``; with a user it requires authentication."""
    influxd = need_server("influxd")
    config, url = folder / "influxdb.conf", ""

    def start(port: int, backup: int) -> Process:
        nonlocal url
        url = f"http://127.0.0.1:{port}"
        auth = "true" if user else "false"
        ports = {"port": port, "backup": backup}
        config.write_text(_CONFIG.format(folder=folder, auth=auth, secret=SHARED_SECRET, max_rows=max_rows, **ports))
        return Process([influxd, "run", "-config", config], folder / "influxdb.log")

    with start_on_free_ports(start, 2) as process:
        process.wait_until(lambda: requests.get(f"{url}/ping", timeout=2).ok, "InfluxDB is ready")
        if user:
            InfluxDb(url, process).run(f"CREATE USER {user} WITH PASSWORD '{password}' WITH ALL PRIVILEGES")
        server = InfluxDb(url, process, user, password)
        server.run("CREATE DATABASE telegraf")
        yield server
