"""Traces: file format, import of public data sets, recording of a cluster, and a synthetic world."""
