"""The scheduler plugin: an extender that makes a stock kube-scheduler load-aware, over HTTP."""
