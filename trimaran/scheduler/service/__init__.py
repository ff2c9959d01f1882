"""Scheduler as a process: it watches the cluster, carries out decisions, and reports their outcome."""
