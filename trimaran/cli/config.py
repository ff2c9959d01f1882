"""``trimaran config``: show the watcher's settings. ``trimaran config check FILE``: check a scheduler configuration."""

from collections.abc import Collection
from pathlib import Path

import click

from runtime.terminal import colorize, echo, echo_table
from scoring import SchedulerConfiguration
from scoring.kubernetes_version import LATEST_VERSION, known_version
from scoring.profiles.configuration.fields import UnknownPlugin
from trimaran.cli.config_users import Users, unknown_keys
from trimaran.cli.options import (
    allow_option,
    judge,
    kube_scheduler_option,
    kubernetes_version_option,
    report_newest_version,
    scheduler_file_or_exit,
)
from trimaran.kube_scheduler.findings import StartVerdict
from trimaran.plugins import read_scheduler_file
from trimaran.scheduler_file import SchedulerFile
from trimaran.yaml_lines import KeyLines
from watcher.commands import setting_options, show_settings

_COLORS = {"unknown": "red", "refused": "red", "changed": "yellow", "warning": "yellow"}


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
@kube_scheduler_option
def check(
    file: Path, kubernetes_version: str | None, allow: tuple[str, ...], kube_scheduler: Path | None, *, show_all: bool
) -> None:
    """Check which keys of a KubeSchedulerConfiguration trimaran honors, changes or ignores, and who can use the file.

    \b
    Examples:
      trimaran config check scheduler.yaml --kubernetes-version 1.37
      trimaran config check scheduler.yaml --kube-scheduler /usr/local/bin/kube-scheduler
      kubectl -n kube-system get cm scheduler -o jsonpath='{.data.config}' | trimaran config check -

    Exit status: 0 if the file is valid; 1 if it has problems, which the last line counts: unknown keys, values that
    kube-scheduler refuses, arguments or combinations of plugins that trimaran scheduler refuses, or a watcher address
    that the Go plugins cannot use; 2 if it cannot be read, or has an unknown plugin or an invalid argument of a score.
    """
    if kubernetes_version is None:
        report_newest_version()
    rules = known_version(kubernetes_version or LATEST_VERSION)
    with scheduler_file_or_exit(file) as read:
        judged = judge(kube_scheduler, rules, allow)
        verdict = judged(read.text)
        try:
            configuration = read_scheduler_file(read.document, kubernetes_version=rules, allow=allow)
        except ValueError:
            _show_verdict(verdict, read.lines)
            echo_table(["CAN BE USED BY", f"({verdict.judge})"], [["kube-scheduler", verdict.row]])
            raise
    unknown = _show_notes(configuration, read.lines, show_all=show_all)
    addresses = _show_addresses(read.lines)
    _show_verdict(verdict, read.lines)
    problem, is_wrong = _scheduler_problem(read, configuration, allow)
    users = Users(read, configuration, rules, frozenset(allow), judged)
    rows = [["kube-scheduler", verdict.row], *users.rows(), ["trimaran scheduler", problem or "yes"]]
    echo_table(["CAN BE USED BY", f"({verdict.judge})"], rows)
    for profile in configuration.profiles:
        weights = (
            ", ".join(f"{each.weight} x {each.plugin.name}" for each in profile.plugins) or "no known score plugin"
        )
        echo(f"{profile.scheduler_name}: {weights}")
    problems = [unknown] if unknown else []
    problems += [f"{addresses} without /compat"] if addresses else []
    problems += ["kube-scheduler refuses it"] if verdict.refused else []
    problems += ["trimaran scheduler refuses it"] if is_wrong else []
    result = f"has problems: {', '.join(problems)}" if problems else "is valid"
    echo(colorize(f"{file} {result}", "yellow" if problems else "green"))
    raise SystemExit(1 if problems else 0)


def _show_verdict(verdict: StartVerdict, lines: KeyLines) -> None:
    """Print why kube-scheduler refuses a file, and which values were not checked."""
    for status, problems in (("refused", verdict.refused), ("warning", verdict.unchecked)):
        for problem in problems:
            line = lines.line_of(problem.path)
            where = f"{problem.name or problem.path or 'the file'}{f' (line {line})' if line else ''}"
            reason = problem.reason if status == "refused" else f"not checked: {problem.reason}"
            _print_note(status, where, f"kube-scheduler: {reason}")


def _scheduler_problem(
    file: SchedulerFile, configuration: SchedulerConfiguration, allow: Collection[str]
) -> tuple[str, bool]:
    """Return why ``trimaran scheduler`` refuses a file ("" if it does not), and whether the file has an error.

    Plugins that trimaran lacks are no error, nor are unknown keys, which the caller counts.
    """
    from trimaran.scheduler.profiles.configuration import read_setup  # slow to import

    if unknown := unknown_keys(configuration):
        return f"no: it refuses {', '.join(unknown)}", False
    try:
        read_setup(file.document, allow)
    except UnknownPlugin as error:
        return f"no: {error}", False
    except ValueError as error:
        line = file.lines.line_of(str(error))
        return f"no: {f'line {line}: ' if line else ''}{error}", True
    return "", False


def _show_notes(configuration: SchedulerConfiguration, lines: KeyLines, *, show_all: bool) -> str:
    """Print the notes about the keys; return the number of unknown keys as text, "" if there are none."""
    for note, line in lines.located(configuration.notes):
        if show_all or note.status != "honored":
            _print_note(note.status, f"{note.path}{f' (line {line})' if line else ''}", note.detail)
    count = len(unknown_keys(configuration))
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
