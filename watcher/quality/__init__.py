"""Quality checks of metrics: each fetch on its own (``analyzer``), and against earlier fetches (``anomalies``)."""
