"""Traces: the format, public data sets, recordings of a cluster, and the synthetic world."""
