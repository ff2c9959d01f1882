"""Use of pods: its sources, the learner of workloads, each pod's last day, and recommended requests."""
