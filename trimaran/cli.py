"""The command line. Commands are imported when they are called, so that ``trimaran --help`` answers at once."""

import importlib
from typing import Any

import click

import trimaran

#: Command to where it is.
COMMANDS = {
    "watch": "watcher.commands:watch",
    "config": "watcher.commands:config",
    "top": "client.commands:top",
    "score": "client.commands:score",
}


class LazyGroup(click.Group):
    """A group that imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of their use."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


@click.command(cls=LazyGroup)
@click.version_option(trimaran.__version__, message="trimaran %(version)s")
def main(**_options: Any) -> None:
    """Load-aware placement for Kubernetes: watch what nodes use, and score pods against it."""
