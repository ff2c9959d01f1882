"""HTTP server on gunicorn: connections, access control, TLS, probes and error bodies."""
