"""A network namespace for one test, which can drop packets on its loopback interface."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.networks import enter_network, enter_new_network, open_network
from support.servers import need_server


@contextmanager
def private_network() -> Iterator["Network"]:
    """Move this thread and the processes that it starts to a new network namespace until the block ends."""
    ip, nft = need_server("ip"), need_server("nft")
    with open_network() as before:
        try:
            enter_new_network()
        except OSError as error:
            pytest.skip(f"no network namespace: {error.strerror}; run it as root")
        try:
            subprocess.run([ip, "link", "set", "lo", "up"], check=True)
            yield Network(Path(nft))
        finally:
            enter_network(before)


class Network:
    """Packet loss on the namespace's loopback interface, by nftables rules."""

    def __init__(self, nft: Path) -> None:
        self._nft = nft

    def drop(self, percent: int, *urls: str) -> None:
        """Silently drop a percentage of the packets to and from the ports of some URLs."""
        ports = ", ".join(url.rpartition(":")[2] for url in urls)
        self.heal()
        self._run("add table inet faults")
        self._run("add chain inet faults output { type filter hook output priority 0 ; }")
        sample = "" if percent >= 100 else f"numgen random mod 100 < {percent} "
        for side in ("sport", "dport"):
            self._run(f"add rule inet faults output tcp {side} {{ {ports} }} {sample}drop")

    def heal(self) -> None:
        """Stop dropping packets."""
        self._run("flush ruleset")

    def _run(self, command: str) -> None:
        subprocess.run([self._nft, command], check=True)
