"""Options of commands that read the past of pods from a Prometheus."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from runtime import masking
from runtime.http import credentials
from runtime.http.session import BoundedSession
from runtime.terminal import duration_option
from trimaran.cli.options import option, path_option
from trimaran.traces.recording.history import STEP_SECONDS
from trimaran.traces.recording.prometheus import DirectPrometheus
from trimaran.traces.recording.recording import SeriesOptions


@dataclass(frozen=True)
class PrometheusOptions:
    """Values of the options; see the help of each."""

    address: str | None
    series: SeriesOptions
    minutes_at_once: int
    token_file: Path | None
    ca_file: Path | None
    headers: tuple[str, ...]

    @contextlib.contextmanager
    def open(self) -> Iterator[DirectPrometheus]:
        """Yield the Prometheus at the address.

        Raises:
            UsageError: an option is not valid, or the address is missing.
        """
        if self.address is None:
            raise click.UsageError("--prometheus is missing: the address of the Prometheus")
        pairs = dict(header.partition("=")[::2] for header in self.headers)
        if not all(name and value for name, value in pairs.items()):
            raise click.UsageError("--header must be NAME=VALUE")
        if self.ca_file is not None and not self.ca_file.is_file():
            raise click.UsageError(f"--ca-file {self.ca_file}: no such file")
        masking.register_address_secrets(self.address)
        token_file = self.token_file
        authenticate = credentials.bearer(lambda: credentials.read_token(token_file) if token_file else "")
        verify = True if self.ca_file is None else str(self.ca_file)
        with contextlib.closing(BoundedSession(authenticate, verify=verify, headers=pairs)) as session:
            yield DirectPrometheus(session, self.address)


def prometheus_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which gets the argument ``prometheus``."""

    @click.option(
        "--prometheus",
        "address",
        metavar="URL",
        help="Address of the Prometheus with the containers' history.",
    )
    @duration_option("--rate", default="2m", help="Range of CPU rates: at least twice the scrape interval.")
    @click.option("--matchers", default="", help='Label matchers for all series, such as cluster="north".')
    @option(
        "--minutes-at-once",
        type=click.IntRange(5, 10_000),
        default=120,
        help="Longest time range of a query, in minutes.",
    )
    @path_option("--token-file", help="File with a bearer token for the Prometheus.")
    @path_option("--ca-file", help="Certificate authorities to trust for the Prometheus.")
    @click.option(
        "--header",
        "headers",
        multiple=True,
        metavar="NAME=VALUE",
        help="HTTP header of each query, such as X-Scope-OrgID=a; may be repeated.",
    )
    @wraps(command)
    def with_prometheus(
        address: str | None, rate: float, matchers: str, minutes_at_once: int, token_file: Path | None,
        ca_file: Path | None, headers: tuple[str, ...], **options: Any,
    ) -> None:  # fmt: skip
        if address is not None and not address.startswith(("http://", "https://")):
            raise click.UsageError(
                f"--prometheus {masking.without_credentials(address)}: must begin with http:// or https://"
            )
        if rate < STEP_SECONDS:
            raise click.UsageError(f"--rate must be at least {STEP_SECONDS} seconds, not {rate:g}")
        chosen = PrometheusOptions(
            address, SeriesOptions(round(rate), matchers), minutes_at_once, token_file, ca_file, headers
        )
        command(prometheus=chosen, **options)

    return with_prometheus


@contextlib.contextmanager
def progress_bar(label: str) -> Iterator[Callable[[float], None]]:
    """Show a progress bar; yield a function that sets the share that is done."""
    with click.progressbar(length=1000, label=label, file=sys.stderr) as bar:
        yield lambda share: bar.update(round(1000 * share) - bar.pos)
