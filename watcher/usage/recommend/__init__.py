"""Recommended requests, and reasons not to lower a request."""
