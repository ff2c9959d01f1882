"""Nodes that say themselves how loaded they are: soft taints and annotations, for schedulers that nobody may touch."""
