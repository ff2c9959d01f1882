"""Import of public data sets as traces: one module per format. Downloaded files are read as a stream."""
