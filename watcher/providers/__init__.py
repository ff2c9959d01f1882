"""Metrics providers: a file or package for each, found by name through entry points."""
