"""NUMA nodes: the plugin NodeResourceTopologyMatch; see docs/numa.md."""
