"""Replays what pods really used against any policy, and compares policies."""
