"""Serves: routes, access, TLS, and the gunicorn worker that slow clients cannot hold."""
