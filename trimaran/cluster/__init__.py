"""View of the live cluster as scoring's tables: nodes and pods by list and watch, and pods in flight."""
