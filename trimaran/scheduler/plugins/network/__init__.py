"""Network costs between the workloads of an application; see docs/network-aware.md."""
