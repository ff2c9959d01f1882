"""Checks of the times of the newest samples, to detect sources that have stopped and clocks that are wrong."""

from collections import deque
from collections.abc import Iterator, Mapping

from watcher.findings import Finding, Kind
from watcher.settings import QualitySettings

_PACE_FETCHES = 5  # number of fetches over which the pace of a source's clock is measured


class Staleness:
    """Detector of old and future samples, with the times of every node's newest samples over the last fetches."""

    def __init__(self, settings: QualitySettings) -> None:
        self._settings = settings
        self._newest: deque[tuple[int, Mapping[str, float]]] = deque(maxlen=_PACE_FETCHES)

    def judge(self, now: int, newest: Mapping[str, float]) -> Iterator[Finding]:
        """Yield a finding for each node whose newest sample is old or in the future.

        If a node's samples are old but new ones keep coming, the finding is about a wrong clock, not a stopped source.

        Args:
            now: time of the fetch, Unix seconds.
            newest: node name to the time of its newest sample, Unix seconds.
        """
        if self._newest and now <= self._newest[-1][0]:
            self._newest.clear()
        self._newest.append((now, newest))
        earlier, earlier_newest = self._newest[0]
        settings = self._settings
        for node, time in newest.items():
            age = now - time
            if age < -settings.clock_skew_seconds:
                message = f"the newest sample is {-age:.0f} s in the future: are the clocks synchronized?"
                yield Finding(Kind.CLOCK_SKEW, message, node=node)
            elif age > settings.stale_seconds:
                if time - earlier_newest.get(node, time) > (now - earlier) / 2:
                    message = f"new samples keep coming, {age:.0f} s late: is the source slow, or its clock behind?"
                    yield Finding(Kind.CLOCK_SKEW, message, node=node)
                else:
                    message = f"the newest sample is {age:.0f} s old"
                    action = settings.stale_action
                    yield Finding(Kind.STALE, message, node=node, action=action, since=max(0, int(time)))
