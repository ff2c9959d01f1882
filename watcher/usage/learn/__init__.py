"""Learner of the use of workloads, and its state."""
