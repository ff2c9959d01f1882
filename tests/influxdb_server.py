"""A real InfluxDB 1.x (Debian's influxd), started for a test on loopback and empty."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

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
  max-row-limit = {max_rows}
  log-enabled = false
[monitor]
  store-enabled = false
"""


@dataclass(frozen=True)
class InfluxDb:
    """A running server. ``user`` and ``password`` are its administrator's, where it wants them."""

    url: str
    user: str = ""
    password: str = ""

    def run(self, statement: str) -> None:
        """Run a statement that changes something."""
        self._post("/query", {"q": statement})

    def write(
        self, lines: Iterable[str], database: str = "telegraf", retention_policy: str = "", precision: str = "s"
    ) -> None:
        """Write lines of line protocol, with times in seconds."""
        params = {"db": database, "precision": precision, "rp": retention_policy}
        self._post("/write", "\n".join(lines).encode(), params)

    def _post(self, path: str, data: bytes | Mapping[str, str], params: Mapping[str, str] | None = None) -> None:
        auth = (self.user, self.password) if self.user else None
        response = requests.post(self.url + path, data=data, params=params, auth=auth, timeout=30)
        assert response.status_code < 300, response.text
        assert "error" not in response.text, response.text


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def run_influxdb(folder: Path, *, user: str = "", password: str = "", max_rows: int = 0) -> Iterator[InfluxDb]:
    """Run a server with the database ``telegraf``; with a user it wants credentials.

    Where there is no influxd the test is skipped, or fails where CI=true.
    """
    influxd = shutil.which("influxd")
    if influxd is None:
        message = "influxd is not installed: apt-get install -y --no-install-recommends influxdb"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    port = _free_port()
    config = folder / "influxdb.conf"
    auth = "true" if user else "false"
    config.write_text(_CONFIG.format(folder=folder, port=port, backup=_free_port(), auth=auth, max_rows=max_rows))
    with (folder / "influxdb.log").open("wb") as log:
        process = subprocess.Popen([influxd, "run", "-config", str(config)], stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(url, process)
        if user:
            InfluxDb(url).run(f"CREATE USER {user} WITH PASSWORD '{password}' WITH ALL PRIVILEGES")
        server = InfluxDb(url, user, password)
        server.run("CREATE DATABASE telegraf")
        yield server
    finally:
        process.terminate()
        process.wait(20)


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        assert process.poll() is None, "influxd ended at once"
        try:
            if requests.get(f"{url}/ping", timeout=2).status_code == 204:
                return
        except requests.ConnectionError:
            time.sleep(0.02)
    pytest.fail("influxd is not ready within 30 s")
