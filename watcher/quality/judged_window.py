"""Which window is held against its own past."""

from collections.abc import Sequence

from runtime import duration

_OVERLAPPING = 3  # intervals in a window, for its values to have to do with the ones before


def judged_window(windows: Sequence[str], interval_seconds: float) -> str:
    """Return the window whose past is kept: the shortest that has to do with the one before, else the longest."""
    ordered = sorted(windows, key=duration.seconds)
    overlapping = (each for each in ordered if duration.seconds(each) >= _OVERLAPPING * interval_seconds)
    return next(overlapping, ordered[-1])
