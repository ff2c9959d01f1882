"""Use of each pod over its last day."""
