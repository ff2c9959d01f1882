"""Command line: one module a command."""

from trimaran.cli.main import main

__all__ = ["main"]
