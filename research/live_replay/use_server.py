"""HTTP server of the use in a live replay, which the provider of the watcher reads, and what it may do wrong."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

from control_plane.world_player import WorldClock
from placements import Placements
from support.servers import reply, serving

from trimaran.simulator.windows import Windows


@contextmanager
def use_server(placements: Placements, clock: WorldClock) -> Iterator[str]:
    """Serve the use of nodes and pods until the block ends; yield the address.

    Node metrics are those of the simulator's windows over the real placements: samples of a minute, each of CPU a rate
    over five. A window ends with the last full minute.
    """

    def minutes(seconds: float) -> int:
        return max(1, round(seconds * clock.speed / 60))

    def answer(handler: Any) -> None:
        asked = urlsplit(handler.path)
        span, minute = minutes(float(parse_qs(asked.query)["seconds"][0])), clock.minute()
        if asked.path == "/pods":
            reply(handler, placements.pod_use(minute, span))
            return
        snapshot = placements.metrics_at(int(minute), Windows(window_minutes=span))
        nodes = {
            name: [[each.type, each.operator, each.value] for each in node.metrics]
            for name, node in snapshot.data.items()
        }
        reply(handler, {"newest": clock.unix_seconds(int(minute)), "nodes": nodes})

    with serving(answer) as server:
        yield server.url
