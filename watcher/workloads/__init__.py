"""Workloads: the use of every container, the pods that run, and what is learnt of their workloads."""
