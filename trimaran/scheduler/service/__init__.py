"""Scheduler as a process: follows the cluster, carries out decisions, reports."""
