"""Scheduler extender over HTTP that makes a stock kube-scheduler load-aware."""
