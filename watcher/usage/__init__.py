"""Use of pods: where it is read, what is learned of it, each pod's last day, and recommended requests."""
