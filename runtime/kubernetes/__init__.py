"""Kubernetes: its API client, its objects, and what a pod requests."""
