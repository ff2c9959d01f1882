"""Policies that move running pods, in addition to a placement policy."""
