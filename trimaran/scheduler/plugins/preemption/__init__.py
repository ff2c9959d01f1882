"""Preemption: search for pods after whose deletion a pod of higher priority fits."""
