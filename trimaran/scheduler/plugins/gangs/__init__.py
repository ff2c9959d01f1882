"""Gangs: plugins that place all pods of a group or none, and the status of PodGroups; see docs/gangs.md."""
