"""Measured load of nodes, as arrays aligned to a node table."""
