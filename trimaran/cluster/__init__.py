"""The live cluster: nodes and pods by list and watch, and pods in flight, as scoring's tables."""
