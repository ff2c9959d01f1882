"""What the times of newest samples give away: sources that stopped, and clocks that are wrong."""

from collections import deque
from collections.abc import Iterator, Mapping

from watcher.findings import Finding, Kind
from watcher.quality.reactions import DONE
from watcher.settings import QualitySettings

_PACE_FETCHES = 5  # over so many fetches a source's clock is seen to run


class Staleness:
    """The newest samples of all nodes, over a few fetches."""

    def __init__(self, settings: QualitySettings) -> None:
        self._settings = settings
        self._newest: deque[tuple[int, Mapping[str, float]]] = deque(maxlen=_PACE_FETCHES)

    def judge(self, now: int, newest: Mapping[str, float]) -> Iterator[Finding]:
        """Yield whose newest sample is old or in the future; old ones that keep coming are of a clock behind."""
        if self._newest and now <= self._newest[-1][0]:
            self._newest.clear()
        self._newest.append((now, newest))
        then, before = self._newest[0]
        settings = self._settings
        for node, time in newest.items():
            age = now - time
            if age < -settings.clock_skew_seconds:
                message = f"the newest sample is {-age:.0f} s in the future: are the clocks synchronized?"
                yield Finding(Kind.CLOCK_SKEW, message, node=node)
            elif age > settings.stale_seconds:
                if time - before.get(node, time) > (now - then) / 2:
                    message = f"samples keep coming {age:.0f} s late: is the source slow, or its clock behind?"
                    yield Finding(Kind.CLOCK_SKEW, message, node=node)
                else:
                    message = f"the newest sample is {age:.0f} s old"
                    action = DONE[settings.stale_action]
                    yield Finding(Kind.STALE, message, node=node, action=action, since=max(0, int(time)))
