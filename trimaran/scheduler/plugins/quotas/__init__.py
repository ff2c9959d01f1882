"""Quotas that namespaces can lend each other: the plugin CapacityScheduling; see docs/quotas.md."""
