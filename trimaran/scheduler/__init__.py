"""Scheduler: kube-scheduler's framework over arrays. The state machine is pure; the service gives it a live cluster."""

STATUS = "/status"  # route with the state of the scheduler
