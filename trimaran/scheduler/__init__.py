"""Scheduler: kube-scheduler's framework over arrays, as a state machine. The service connects it to a live cluster."""

STATUS = "/status"  # route with the state of the scheduler
