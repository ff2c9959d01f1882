"""Command line: one module per command."""

from trimaran.cli.main import main

__all__ = ["main"]
