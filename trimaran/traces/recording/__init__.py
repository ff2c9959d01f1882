"""Recording of a cluster as a trace: pods' requests from Kubernetes, and their use from a Prometheus."""
