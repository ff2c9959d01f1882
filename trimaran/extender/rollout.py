"""Rollout of the extender: its scores are sent for all pods, for none (shadow), for a percentage (canary), or in trial.

In a field trial the time decides, not the pod; see :mod:`trimaran.extender.trial`.

A hash of the pod's uid decides whether the pod is in the canary. The decision is therefore the same at every scheduling
attempt and in every replica of the extender, and a larger canary includes all pods of a smaller one.
"""

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from runtime.errors import SettingsError
from runtime.server.reloading import ReloadingValue
from trimaran.extender.trial.state import TrialPlan

if TYPE_CHECKING:
    from runtime.settings.loading import LoadedSettings
    from trimaran.extender.settings import ExtenderSettings

_STEPS = 2**64
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rollout:
    """Share of the pods for which kube-scheduler gets the extender's scores. Other pods are scored and recorded only.

    Attributes:
        mode: ``shadow`` sends the scores of no pod, ``active`` those of ``canary`` percent of the pods, and ``trial``
            those of all pods while the field trial acts.
        canary: percentage of the pods, 0 to 100.
        trial: settings of the field trial.
    """

    mode: Literal["active", "shadow", "trial"] = "shadow"
    canary: float = 100.0
    trial: TrialPlan = field(default_factory=TrialPlan)

    def at_present(self, is_acting: bool) -> "Rollout":
        """Return the rollout with ``active`` or ``shadow`` in place of ``trial``.

        Args:
            is_acting: whether the field trial acts.
        """
        if self.mode != "trial":
            return self
        return Rollout("active" if is_acting else "shadow")

    @property
    def percent(self) -> float:
        """Percentage of the pods whose scores are sent to kube-scheduler, 0 to 100."""
        return self.canary if self.mode == "active" else 0.0

    def is_active(self, uid: str) -> bool:
        """Return whether the scores of the pod with this uid are sent to kube-scheduler."""
        if self.percent in {0.0, 100.0}:
            return self.percent == 100.0
        hashed = int.from_bytes(hashlib.blake2b(uid.encode(), digest_size=8).digest(), "big")
        return 100 * hashed < self.percent * _STEPS


def follow_rollout(loaded: "LoadedSettings[ExtenderSettings]") -> Callable[[], Rollout]:
    """Return a function that returns the current rollout, and reads the settings file again when the file changes.

    Flags and environment variables override the file. If the changed file is invalid, the rollout stays the same.
    """
    current = _rollout(loaded)

    def read() -> Rollout:
        nonlocal current
        try:
            changed = _rollout(loaded.reload())
        except SettingsError as error:
            raise ValueError(str(error)) from error
        if changed != current:
            extra = {"mode": changed.mode, "canary": changed.canary, "percent": changed.percent}
            _log.info(
                "the rollout was changed to mode %s: %g percent of the pods get scores",
                changed.mode,
                changed.percent,
                extra=extra,
            )
        current = changed
        return changed

    return ReloadingValue(() if loaded.file is None else (loaded.file,), read).get


def _rollout(loaded: "LoadedSettings[ExtenderSettings]") -> Rollout:
    section = loaded.settings.extender
    return Rollout(section.mode, section.canary, section.trial_plan())
