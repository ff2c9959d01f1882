"""``trimaran config``: show the watcher's settings. ``trimaran config check FILE``: check a scheduler configuration."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import click

from runtime.terminal import colorize, echo, echo_table
from scoring import SchedulerConfiguration
from scoring.kubernetes_version import LATEST_VERSION, in_tree_plugins, known_version
from scoring.profiles.configuration.fields import UnknownPlugin
from scoring.profiles.configuration.plugins import OWN_OPTIONS, UPSTREAM_PLUGINS
from trimaran.cli.options import allow_option, kubernetes_version_option, report_newest_version, scheduler_file_or_exit
from trimaran.plugins import read_scheduler_file
from trimaran.scheduler_file import SchedulerFile
from trimaran.yaml_lines import KeyLines
from watcher.commands import setting_options, show_settings

_COLORS = {"unknown": "red", "changed": "yellow", "warning": "yellow"}


@click.group(invoke_without_command=True)
@setting_options
@click.pass_context
def config(context: click.Context, file: Path | None, assignments: tuple[str, ...]) -> None:
    """Show the effective settings and their origins; secrets are masked."""
    if context.invoked_subcommand is None:
        show_settings(file, assignments)


@config.command(short_help="Check which keys of a KubeSchedulerConfiguration trimaran honors.")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--all", "show_all", is_flag=True, help="Also show the keys that trimaran honors unchanged.")
@kubernetes_version_option
@allow_option
def check(file: Path, kubernetes_version: str | None, allow: tuple[str, ...], *, show_all: bool) -> None:
    """Check which keys of a KubeSchedulerConfiguration trimaran honors, changes or ignores, and who can use the file.

    \b
    Example: kubectl -n kube-system get cm scheduler -o jsonpath='{.data.config}' | trimaran config check -

    Exit status: 0 if the file is valid; 1 if it has problems, which the last line counts: unknown keys, arguments or
    combinations of plugins that trimaran scheduler refuses as kube-scheduler does, or a watcher address that the Go
    plugins cannot use; 2 if it cannot be read, or has an unknown plugin or an invalid argument of a score.
    """
    if kubernetes_version is None:
        report_newest_version()
    rules = known_version(kubernetes_version or LATEST_VERSION)
    with scheduler_file_or_exit(file) as read:
        configuration = read_scheduler_file(read.document, kubernetes_version=rules, allow=allow)
    unknown = _show_notes(configuration, read.lines, show_all=show_all)
    addresses = _show_addresses(read.lines)
    problem, is_wrong = _scheduler_problem(read, configuration, allow)
    users = [*_users(configuration, rules, frozenset(allow)), ["trimaran scheduler", problem or "yes"]]
    echo_table(["CAN BE USED BY", ""], users)
    for profile in configuration.profiles:
        weights = (
            ", ".join(f"{each.weight} x {each.plugin.name}" for each in profile.plugins) or "no known score plugin"
        )
        echo(f"{profile.scheduler_name}: {weights}")
    problems = [unknown] if unknown else []
    problems += [f"{addresses} without /compat"] if addresses else []
    problems += ["trimaran scheduler refuses it"] if is_wrong else []
    verdict = f"has problems: {', '.join(problems)}" if problems else "is valid"
    echo(colorize(f"{file} {verdict}", "yellow" if problems else "green"))
    raise SystemExit(1 if problems else 0)


def _scheduler_problem(
    file: SchedulerFile, configuration: SchedulerConfiguration, allow: Collection[str]
) -> tuple[str, bool]:
    """Return why ``trimaran scheduler`` does not take a file, "" if it does, and whether the file's values are wrong.

    A plugin that it does not have does not make a file wrong, nor do unknown keys, which are counted already.
    """
    from trimaran.scheduler.configuration import read_setup  # slow to import

    if unknown := _unknown(configuration):
        return _usable(unknown, ()), False
    try:
        read_setup(file.document, allow)
    except UnknownPlugin as error:
        return f"no: {error}", False
    except ValueError as error:
        line = file.lines.line_of(str(error))
        return f"no: {f'line {line}: ' if line else ''}{error}", True
    return "", False


def _users(configuration: SchedulerConfiguration, version: str, allow: frozenset[str]) -> Iterator[list[str]]:
    """Yield the programs that read such files, each with "yes" or with the reason why it cannot use this one.

    Args:
        configuration: the file.
        version: version of kube-scheduler.
        allow: names of the plugins that this kube-scheduler has in addition to those of Kubernetes.
    """
    from trimaran.extender.profiles import our_plugins  # only needed here

    ours, stock = our_plugins(), in_tree_plugins(version)
    enabled = configuration.enabled - allow
    notes = configuration.notes
    old = [note.path for note in notes if note.status == "changed" and note.path.endswith(".apiVersion")]
    unknown = _unknown(configuration)
    refused = old + unknown
    options = sorted({note.path for note in notes if note.path in OWN_OPTIONS})
    scored = sorted({each.plugin.name for profile in configuration.profiles for each in profile.plugins})
    yield ["kube-scheduler", _usable(refused, enabled - stock)]
    if enabled - stock:
        yield ["kube-scheduler with the Go plugins", _usable(refused + options, enabled - stock - UPSTREAM_PLUGINS)]
    # kube-scheduler does not see the arguments of our plugins, and the extender warns of those that it does not know.
    ignored = [path for path in unknown if path.partition("Args.")[0] in ours]
    extender = f"yes, converted by trimaran extender config{_ignoring(ignored)}"
    if not ours.intersection(scored):
        extender = f"no: it enables none of {', '.join(sorted(ours))}"
    problem = _usable([path for path in refused if path not in ignored], enabled - stock - ours)
    yield ["kube-scheduler with trimaran's extender", extender if problem == "yes" else problem]
    score = f"yes{_ignoring(unknown)}"
    yield ["trimaran score", score if scored else "no: it enables no score that is implemented"]


def _unknown(configuration: SchedulerConfiguration) -> list[str]:
    return [note.path for note in configuration.notes if note.status == "unknown"]


def _ignoring(keys: Sequence[str]) -> str:
    return f"; it ignores {', '.join(keys)}" if keys else ""


def _usable(refused_keys: Sequence[str], missing_plugins: Collection[str]) -> str:
    if missing_plugins:
        return f"no: it has no plugin {', '.join(sorted(missing_plugins))}"
    return f"no: it refuses {', '.join(refused_keys)}" if refused_keys else "yes"


def _show_notes(configuration: SchedulerConfiguration, lines: KeyLines, *, show_all: bool) -> str:
    """Print the notes about the keys; return the number of unknown keys as text, "" if there are none."""
    for note, line in lines.located(configuration.notes):
        if show_all or note.status != "honored":
            _print_note(note.status, f"{note.path}{f' (line {line})' if line else ''}", note.detail)
    count = len(_unknown(configuration))
    return "" if not count else "1 unknown key" if count == 1 else f"{count} unknown keys"


def _show_addresses(lines: KeyLines) -> str:
    """Warn of watcher addresses that the Go plugins cannot use; return their number as text, "" if there are none."""
    addresses = [(path, value) for path, value in lines.values.items() if path.endswith(".watcherAddress")]
    wrong = [(path, value) for path, value in addresses if not value.rstrip("/").endswith("/compat")]
    for path, value in wrong:
        location, compat = f"{path} (line {lines.line_of(path)})", f"{value.rstrip('/')}/compat"
        detail = f"the Go plugins find no nodes at this address unless server.dialect is go: use {compat}"
        _print_note("warning", location, detail)
    return "" if not wrong else "1 watcherAddress" if len(wrong) == 1 else f"{len(wrong)} watcherAddresses"


def _print_note(status: str, key: str, detail: str) -> None:
    label = f"{status:8}"
    label = colorize(label, _COLORS[status]) if status in _COLORS else label
    echo(label, f" {key}{f': {detail}' if detail else ''}")
