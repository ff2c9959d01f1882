"""Command line of trimaran: one module for each command."""

from trimaran.cli.main import main

__all__ = ["main"]
