"""Simulator: replays of recorded or synthetic pod use under different placement policies."""
