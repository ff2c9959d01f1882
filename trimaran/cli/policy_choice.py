"""Policies that ``trimaran simulate`` replays: from the catalogue, or from KubeSchedulerConfigurations."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from runtime.terminal import echo
from trimaran.cli.options import fail, scheduler_file_or_exit
from trimaran.plugins import read_scheduler_file, uncalled
from trimaran.simulator.policies.catalogue import policy_names
from trimaran.simulator.policies.cluster_objects import read_objects
from trimaran.simulator.policies.profiles import configured_policy
from trimaran.simulator.policies.standalone import standalone_policy

_STANDALONE = "standalone:"


@dataclass
class PolicyChoice:
    """Policies to replay.

    Attributes:
        configurations: KubeSchedulerConfiguration of each policy as JSON, by name; empty for a policy of the catalogue.
        standalone: names of the policies that ``trimaran scheduler`` carries out, instead of kube-scheduler and the
            extender.
    """

    configurations: dict[str, str] = field(default_factory=dict)
    standalone: set[str] = field(default_factory=set)


def known_policies() -> list[str]:
    """Return the names of the policies in the catalogue; exit with status 2 if an installed plugin cannot be loaded."""
    try:
        return policy_names()
    except ValueError as error:
        fail(error, 2)


def chosen_policies(written: Sequence[str]) -> PolicyChoice:
    """Return the policies to replay; exit with status 2 if one is unknown or cannot be replayed.

    Args:
        written: values of ``--policy``: the name of a policy in the catalogue, ``NAME=FILE``, or
            ``NAME=standalone:FILE``.
    """
    known, choice = known_policies(), PolicyChoice()
    for text in written:
        name, has_file, file = text.partition("=")
        if has_file and (not name or name in known or name in choice.configurations):
            problem = "is taken; choose another name" if name else "is empty; write NAME=FILE"
            raise click.UsageError(f"--policy {text}: the name {f'{name} ' if name else ''}{problem}")
        if not has_file and name not in known:
            raise click.UsageError(
                f"unknown policy {name}; policies are: {', '.join(known)}; NAME=FILE reads a KubeSchedulerConfiguration"
            )
        is_standalone = file.startswith(_STANDALONE)
        if is_standalone:
            choice.standalone.add(name)
        file = file.removeprefix(_STANDALONE)
        if has_file and not file:
            raise click.UsageError(f"--policy {text}: the name of the file is missing")
        choice.configurations[name] = read_configuration(name, Path(file), is_standalone) if has_file else ""
    return choice


def chosen_objects(file: Path | None, choice: PolicyChoice) -> tuple[Mapping[str, Any], ...]:
    """Return the objects of a file; exit with status 2 if the file is invalid, or no policy is standalone."""
    if file is None:
        return ()
    if not choice.standalone:
        raise click.UsageError(f"--objects {file}: only policies of the form NAME=standalone:FILE read objects")
    try:
        return read_objects(file)
    except ValueError as error:
        fail(error, 2)


def read_configuration(name: str, file: Path, is_standalone: bool = False) -> str:
    """Return a KubeSchedulerConfiguration as JSON; exit with status 2 if it cannot be replayed."""
    with scheduler_file_or_exit(file, allow_with="") as read:
        (standalone_policy if is_standalone else configured_policy)(name, read.document)
        for warning in read.unknown_keys(read_scheduler_file(read.document).notes):
            echo(f"trimaran: warning: {warning}", err=True)
        for dropped in () if is_standalone else uncalled(read.document):
            echo(f"trimaran: warning: {file}: {dropped}", err=True)
    return json.dumps(read.document)
