"""A real InfluxDB 1.x (Debian's influxd) on loopback for one test, with an empty database."""

import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests
from support.servers import free_port, need_server, wait_until

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
    process: subprocess.Popen[bytes]
    user: str = ""
    password: str = ""

    def stop(self) -> None:
        """Stop the server."""
        self.process.terminate()
        self.process.wait(20)

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
        response = requests.post(self.url + path, data=data, params=params, auth=auth, timeout=30)
        assert response.status_code < 300, response.text
        assert "error" not in response.text, response.text


@contextmanager
def run_influxdb(folder: Path, *, user: str = "", password: str = "", max_rows: int = 0) -> Iterator[InfluxDb]:
    """Run a server with the database ``telegraf``; with a user it requires authentication."""
    influxd, port = need_server("influxd"), free_port()
    config = folder / "influxdb.conf"
    auth = "true" if user else "false"
    secret = SHARED_SECRET
    config.write_text(
        _CONFIG.format(folder=folder, port=port, backup=free_port(), auth=auth, secret=secret, max_rows=max_rows)
    )
    with (folder / "influxdb.log").open("wb") as log:
        process = subprocess.Popen([influxd, "run", "-config", str(config)], stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: requests.get(f"{url}/ping", timeout=2).ok, "InfluxDB is ready")
        if user:
            InfluxDb(url, process).run(f"CREATE USER {user} WITH PASSWORD '{password}' WITH ALL PRIVILEGES")
        server = InfluxDb(url, process, user, password)
        server.run("CREATE DATABASE telegraf")
        yield server
    finally:
        process.terminate()
        process.wait(20)
