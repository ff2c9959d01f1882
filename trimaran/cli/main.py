"""Entry point of the command line. A command's module is imported on use, so that ``trimaran --help`` is fast."""

import contextlib
import errno
import gc
import importlib
import os
import sys
from typing import Any

import click

import trimaran

#: Module and function of each command, and its help text in the list of commands.
COMMANDS = {
    "watch": ("watcher.commands:watch", "Watch every node's load and serve it."),
    "top": ("trimaran.cli.top:top", "Show the load of every node."),
    "workloads": (
        "trimaran.cli.workloads:workloads",
        "Show the requests of workloads next to their use, and recommend requests.",
    ),
    "score": ("trimaran.cli.score:score", "Rank the nodes for a pod, with the reasons."),
    "compare": ("trimaran.cli.compare:compare", "Compare two watchers, such as load-watcher in Go and this one."),
    "place": ("trimaran.cli.place:place", "Place many pods at once, and show the gap to a lower bound of the cost."),
    "extender": ("trimaran.cli.extender:extender", "Score nodes for a stock kube-scheduler."),
    "explain": ("trimaran.cli.explain:explain", "Explain a pod's placement: its candidate nodes and their scores."),
    "nodes": ("trimaran.cli.nodes:nodes", "Mark nodes with their load: soft taints and annotations."),
    "rebalance": (
        "trimaran.cli.rebalance:rebalance",
        "Move running pods to the nodes where the predicted congestion falls most.",
    ),
    "scheduler": (
        "trimaran.cli.scheduler:scheduler",
        "Place pods by their schedulerName, without a kube-scheduler, or compare with one.",
    ),
    "simulate": (
        "trimaran.cli.simulate:simulate",
        "Replay recorded pod usage with placement policies, and compare the policies.",
    ),
    "assess": (
        "trimaran.cli.assess:assess",
        "Say what load-aware placement would do for a cluster, from its past, with nothing installed.",
    ),
    "record": ("trimaran.cli.record:record", "Record a cluster as a trace for replays."),
    "dashboard": (
        "trimaran.cli.dashboard:dashboard",
        "Serve the page: the load of all nodes, the quality of the metrics, scores of a pod.",
    ),
    "doctor": (
        "trimaran.cli.doctor:doctor",
        "Check every provider, a watcher or an extender step by step, and name the setting that fixes each problem.",
    ),
    "config": ("trimaran.cli.config:config", "Show the effective settings; check a scheduler's configuration."),
}


#: Errors of writing to a full, failing or closed output. click handles a pipe without a reader.
_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


class LazyGroup(click.Group):
    """Group of commands that imports the module of a command when the command is called."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command.

        Failures are reported in one line: exit status 1 if the output cannot be written, 2 if a plugin fails.
        """
        try:
            return super().main(*args, **options)
        except OSError as error:
            if error.errno not in _UNWRITABLE:
                raise
            with contextlib.suppress(OSError):  # stderr may be the same file
                from runtime.terminal import echo

                echo(f"trimaran: the output cannot be written: {error.strerror}", err=True)
            _give_up_output()
            raise SystemExit(1) from None
        except Exception as error:
            failures = sys.modules.get("scoring.plugins.failures")  # not imported if no plugin ran
            plugin, point = ("", "") if failures is None else failures.blamed(error)
            if not plugin:
                raise
            from runtime.errors import error_text
            from runtime.terminal import echo

            echo(f"trimaran: running {point} plugin {plugin}: {error_text(error)}", err=True)
            raise SystemExit(2) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of their usual first use."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None if the name is unknown."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        # Imported objects live until the end: collecting garbage among them would take a fifth of the start-up time.
        gc.set_threshold(100_000)
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the called command; an unknown name is a usage error that suggests the nearest command."""
        if args[0] not in COMMANDS:
            from difflib import get_close_matches  # only this error needs it

            near = get_close_matches(args[0], COMMANDS, n=1)
            ctx.fail(f"No such command {args[0]!r}{f': did you mean {near[0]}?' if near else '.'}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands to the help text, without importing the commands."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_) for name, (_, help_) in COMMANDS.items()])


def _give_up_output() -> None:
    """Discard buffered output that cannot be written: at exit Python would try again, and report the error again."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:  # None if it was closed before Python started
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(trimaran.__version__, message="trimaran %(version)s")
def main(**_options: Any) -> None:
    """Load-aware placement for Kubernetes: watch the load of nodes, and score nodes for pods by it."""
