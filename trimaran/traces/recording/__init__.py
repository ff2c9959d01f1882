"""A trace of a cluster: what its pods ask for, and what they used, as a Prometheus remembers it."""
