"""Choice of the window whose values are compared with earlier fetches."""

from collections.abc import Sequence

from runtime import duration

_OVERLAPPING = 3  # minimum length in fetch intervals for successive windows to overlap enough


def judged_window(windows: Sequence[str], interval_seconds: float) -> str:
    """Return the shortest window of at least three fetch intervals; the longest window if all are shorter.

    Such windows of successive fetches overlap by at least two thirds, so their values change gradually.

    Args:
        windows: durations of the windows, such as ``5m``; at least one.
        interval_seconds: time between two fetches.
    """
    ordered = sorted(windows, key=duration.seconds)
    overlapping = (window for window in ordered if duration.seconds(window) >= _OVERLAPPING * interval_seconds)
    return next(overlapping, ordered[-1])
