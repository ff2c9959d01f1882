"""Preemption: search for pods whose deletion makes room for a pod of higher priority."""
