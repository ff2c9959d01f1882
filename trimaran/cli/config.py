"""``trimaran config``: the watcher's settings; ``trimaran config check FILE``: a scheduler's configuration."""

from pathlib import Path

import click
import yaml

from runtime.terminal import painted
from scoring import KUBERNETES_VERSIONS, SchedulerConfiguration, read_configuration
from trimaran.cli.yaml_lines import Lines
from watcher.commands import setting_options, show_settings

_COLORS = {"unknown": "red", "changed": "yellow", "warning": "yellow"}


@click.group(invoke_without_command=True)
@setting_options
@click.pass_context
def config(context: click.Context, file: Path | None, assignments: tuple[str, ...]) -> None:
    """Show the effective settings and where each came from; secrets are masked."""
    if context.invoked_subcommand is None:
        show_settings(file, assignments)


@config.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--all", "show_all", is_flag=True, help="Show what is honored as it stands, too.")
@click.option(
    "--kubernetes-version",
    default=KUBERNETES_VERSIONS[-1],
    show_default=True,
    help=f"Whose rules hold for kube-scheduler's own scores: {', '.join(KUBERNETES_VERSIONS)}.",
)
def check(file: Path, kubernetes_version: str, *, show_all: bool) -> None:
    """Check a KubeSchedulerConfiguration: which keys the scores honor, change or ignore.

    \b
    Example: kubectl -n kube-system get cm scheduler -o jsonpath='{.data.config}' | trimaran config check -

    Ends with status 0 when it can be used, 1 when it has keys that nothing knows or an address that a stock scheduler
    would not understand, 2 when it cannot be used.
    """
    lines = Lines({}, {})
    try:
        with click.open_file(str(file), "rb") as opened:
            text = opened.read()
        document = yaml.safe_load(text)
        lines = Lines.of(text, document)
        configuration = read_configuration(document, kubernetes_version=kubernetes_version)
    except OSError as error:
        click.echo(f"trimaran: {file} cannot be read: {error.strerror}", err=True)
        raise SystemExit(2) from None
    except (yaml.YAMLError, ValueError) as error:
        where = lines.at(str(error).partition(":")[0])
        click.echo(f"trimaran: {file}{f', line {where}' if where else ''}: {error}", err=True)
        raise SystemExit(2) from None
    unknown = _show_notes(configuration, lines, show_all=show_all)
    addresses = _show_addresses(lines)
    for profile in configuration.profiles:
        weights = (
            ", ".join(f"{each.weight} x {each.plugin.name}" for each in profile.plugins) or "no score that we know"
        )
        click.echo(f"{profile.scheduler_name}: {weights}")
    doubts = [f"{unknown} that nothing knows"] if unknown else []
    doubts += [f"{addresses} without /compat"] if addresses else []
    verdict = f"can be used, but perhaps not as it is meant: {', '.join(doubts)}" if doubts else "can be used as it is"
    click.echo(painted(f"{file} {verdict}", "yellow" if doubts else "green"))
    raise SystemExit(1 if doubts else 0)


def _show_notes(configuration: SchedulerConfiguration, lines: Lines, *, show_all: bool) -> str:
    """Write what became of the keys; return how many nothing knows, in words."""
    profile = 0
    for note in configuration.notes:
        if note.path.startswith("profiles["):
            profile = int(note.path[len("profiles[") :].partition("]")[0])
        if show_all or note.status != "honored":
            where = lines.at(note.path, profile)
            _say(note.status, f"{note.path}{f' (line {where})' if where else ''}", note.detail)
    count = sum(note.status == "unknown" for note in configuration.notes)
    return "" if not count else "1 key" if count == 1 else f"{count} keys"


def _show_addresses(lines: Lines) -> str:
    """Warn of addresses where a stock scheduler would find the wrong dialect; return how many there are, in words."""
    found = [(path, value) for path, value in lines.values.items() if path.endswith(".watcherAddress")]
    wrong = [(path, value) for path, value in found if not value.rstrip("/").endswith("/compat")]
    for path, value in wrong:
        where, right = f"{path} (line {lines.at(path)})", f"{value.rstrip('/')}/compat"
        _say("warning", where, f"the Go plugins find no node there unless server.dialect is go: ours is at {right}")
    return "" if not wrong else "1 watcherAddress" if len(wrong) == 1 else f"{len(wrong)} watcherAddresses"


def _say(status: str, what: str, detail: str) -> None:
    word = f"{status:8}"
    shown = painted(word, _COLORS[status]) if status in _COLORS else word
    click.echo(f"{shown} {what}{f': {detail}' if detail else ''}")
