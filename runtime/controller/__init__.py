"""Skeleton of a service that acts on a cluster: its worker process, its Lease, and its threads."""
