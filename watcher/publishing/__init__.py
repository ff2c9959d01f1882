"""Publishes what was fetched and judged: what stands in for missing measurements, and the bodies to answer with."""
