"""Network costs between the workloads of an application: NetworkOverhead, TopologicalSort; see docs/network-aware.md."""
