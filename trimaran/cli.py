"""The command line. Commands are imported when they are called, so that ``trimaran --help`` answers at once."""

import importlib
from typing import Any

import click

import trimaran

#: Command to where it is, and what the list of commands says of it.
COMMANDS = {
    "watch": ("watcher.commands:watch", "Watch every node's load and serve it."),
    "top": ("client.commands:top", "Show what every node uses."),
    "score": ("client.commands:score", "Rank nodes for a pod, and say why."),
    "doctor": ("watcher.commands:doctor", "Check every provider step by step, and name what mends it."),
    "config": ("trimaran.config_command:config", "Show the effective settings; check a scheduler's configuration."),
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
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_) for name, (_, help_) in COMMANDS.items()])


@click.command(cls=LazyGroup)
@click.version_option(trimaran.__version__, message="trimaran %(version)s")
def main(**_options: Any) -> None:
    """Load-aware placement for Kubernetes: watch what nodes use, and score pods against it."""
