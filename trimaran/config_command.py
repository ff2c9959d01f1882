"""``trimaran config``: the watcher's settings; ``trimaran config check FILE``: a scheduler's configuration."""

from pathlib import Path

import click

from scoring import read_configuration
from watcher.commands import setting_options, show_settings, yaml_or_exit


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
def check(file: Path, show_all: bool) -> None:
    """Check a KubeSchedulerConfiguration: which keys the scores honor, change or ignore.

    Ends with status 0 when it can be used, 1 when it has keys that nothing knows, 2 when it cannot be used.
    """
    with yaml_or_exit(file) as document:
        configuration = read_configuration(document)
    for note in configuration.notes:
        if show_all or note.status != "honored":
            click.echo(str(note))
    for profile in configuration.profiles:
        weights = (
            ", ".join(f"{each.weight} x {each.plugin.name}" for each in profile.plugins) or "no score that we know"
        )
        click.echo(f"{profile.scheduler_name}: {weights}")
    if any(note.status == "unknown" for note in configuration.notes):
        raise SystemExit(1)
