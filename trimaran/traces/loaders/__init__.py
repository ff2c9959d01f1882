"""Public data sets as traces: one module a format, read as users download them, in a stream."""
