"""Filters for pods with volumes, and the binding of claims before their pods are bound."""
