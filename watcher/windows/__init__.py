"""Metrics of a window, computed from samples and points."""
