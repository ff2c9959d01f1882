"""Filters of pods with volumes, and the binding of claims before their pods."""
