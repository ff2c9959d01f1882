"""From samples and points to the metrics of a window."""
