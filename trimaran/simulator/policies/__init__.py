"""Placement policies that replays compare."""
