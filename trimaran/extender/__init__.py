"""Scheduler extender over HTTP that makes a stock kube-scheduler load-aware."""

STATUS = "/status"  # route with the state of the extender
