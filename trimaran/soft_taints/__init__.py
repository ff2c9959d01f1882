"""Soft taints and load annotations on nodes, for clusters whose scheduler cannot be configured."""
