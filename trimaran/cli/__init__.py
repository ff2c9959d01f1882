"""Command line of trimaran: one module for each command."""

from trimaran.cli.main import kubectl_plugin, main

__all__ = ["kubectl_plugin", "main"]
