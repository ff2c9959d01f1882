"""Measured load of nodes, as arrays with an element for each row of a node table."""
