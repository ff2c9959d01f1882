"""Base of every process of the project: HTTP, the server, Kubernetes, settings, logs. Knows nothing of load."""
