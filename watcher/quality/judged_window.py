"""Choice of the window that is compared with its own past."""

from collections.abc import Sequence

from runtime import duration

_OVERLAPPING = 3  # minimum length in fetch intervals for successive windows to overlap enough


def judged_window(windows: Sequence[str], interval_seconds: float) -> str:
    """Return the shortest window that overlaps with its predecessor; the longest window if none does."""
    ordered = sorted(windows, key=duration.seconds)
    overlapping = (window for window in ordered if duration.seconds(window) >= _OVERLAPPING * interval_seconds)
    return next(overlapping, ordered[-1])
