"""Nodes as arrays, and the pods on them."""
