"""Computation of a window's metrics (mean, deviation, percentiles) from samples, or from a source's data points."""
