"""Recommended requests, and reasons against a lower one."""
