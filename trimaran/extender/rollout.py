"""For which pods the extender acts: all, none (shadow), or some percent of them (canary).

A pod is told by its uid, so that it is treated alike however often it is asked about, by each of several replicas; and
when the share grows, the pods that were in it stay in it.
"""

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from runtime.errors import SettingsError
from runtime.server.reloading import Reloading

if TYPE_CHECKING:
    from runtime.settings.loading import Loaded
    from trimaran.extender.settings import ExtenderSettings

_STEPS = 2**64
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rollout:
    """How far the extender is turned on.

    Attributes:
        mode: ``shadow`` acts for no pod, ``active`` for ``canary`` percent of them.
        canary: percent of the pods, 0 to 100.
    """

    mode: Literal["active", "shadow"] = "active"
    canary: float = 100.0

    @property
    def percent(self) -> float:
        """The share of pods that are acted for, 0 to 100."""
        return self.canary if self.mode == "active" else 0.0

    def acts_for(self, uid: str) -> bool:
        """Return whether a pod is answered by its scores."""
        if self.percent in {0.0, 100.0}:
            return self.percent == 100.0
        drawn = int.from_bytes(hashlib.blake2b(uid.encode(), digest_size=8).digest(), "big")
        return 100 * drawn < self.percent * _STEPS


def following(loaded: "Loaded[ExtenderSettings]") -> Callable[[], Rollout]:
    """Return what says how far the extender is turned on, now: the settings' file is read anew when it changes.

    Flags and variables win over the file, as always. A file that cannot be used any more changes nothing.
    """
    current = _rollout(loaded)

    def read() -> Rollout:
        nonlocal current
        try:
            changed = _rollout(loaded.again())
        except SettingsError as error:
            raise ValueError(str(error)) from error
        if changed != current:
            extra = {"mode": changed.mode, "canary": changed.canary, "percent": changed.percent}
            _log.info("from now on it acts for another share of the pods", extra=extra)
        current = changed
        return changed

    return Reloading(() if loaded.file is None else (loaded.file,), read).get


def _rollout(loaded: "Loaded[ExtenderSettings]") -> Rollout:
    own = loaded.settings.extender
    return Rollout(own.mode, own.canary)
