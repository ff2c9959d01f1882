"""Options that several commands share, the clients that these options configure, and the exit with an error."""

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator
from functools import partial, wraps
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from runtime.terminal import duration_option, echo, echo_lines
from watcher.commands import service_options

if TYPE_CHECKING:
    from client.connecting import WatcherClient, WatcherCredentials
    from runtime.kubernetes.api import KubernetesApi
    from trimaran.kube_scheduler.findings import StartVerdict
    from trimaran.scheduler_file import SchedulerFile
    from watcher.settings import Settings

Command = TypeVar("Command", bound=Callable[..., Any])
Decorator = Callable[[Callable[..., None]], Callable[..., None]]
KubernetesOpener = Callable[[], contextlib.AbstractContextManager["KubernetesApi"]]
_CREDENTIALS = {
    "client_certificate": "PEM file with a certificate and its key",
    "ca_file": "Certificate authorities to trust",
    "token_file": "File with a bearer token",
}

KUBE_CONFIG_HELP = "Kubeconfig file. [default: that of kubectl, or in a pod its service account]"
#: Option whose help shows its default.
option = partial(click.option, show_default=True)
#: Option with the path of a file or folder.
path_option = partial(click.option, type=click.Path(path_type=Path))


class FiniteRange(click.FloatRange):
    """Click parameter type: a number in a range. NaN and infinity are refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert the text of an option to a finite number in the range."""
        number = float(super().convert(value, param, ctx))
        return number if isfinite(number) else self.fail(f"{value} is not a finite number.", param, ctx)


def credential_options(server: str, prefix: str = "", argument: str = "access") -> Decorator:
    """Return a decorator that adds the options for a server's credentials to a command.

    Args:
        server: name of the server, for the help.
        prefix: beginning of the options' names, such as ``extender-``.
        argument: name of the command's argument that gets the credentials, as keyword arguments of the server's client.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_credentials(*arguments: Any, **options: Any) -> None:
            credentials = {name: options.pop(f"{argument}_{name}") for name in _CREDENTIALS}
            command(*arguments, **{argument: credentials}, **options)

        decorated: Callable[..., None] = with_credentials
        for name, text in _CREDENTIALS.items():
            flag = f"--{prefix}{name.replace('_', '-')}"
            decorated = path_option(flag, f"{argument}_{name}", help=f"{text} for the {server}.")(decorated)
        return decorated

    return decorate


def controller_options(port: int, *others: tuple[str, str, str]) -> Decorator:
    """Return a decorator that adds the options of a service that reads a watcher and a cluster.

    Args:
        port: default port.
        others: further options, each as flag, name of the setting that the flag sets, and help.
    """
    return service_options(
        port,
        *others,
        ("--watcher", "cluster.watcher", "Address of a watcher. [default: an embedded watcher]"),
        ("--kube-config", "cluster.kube_config", "Kubeconfig file. [default: the pod's service account]"),
    )


def watcher_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for a watcher to a command, which gets the arguments ``address`` and ``access``.

    :func:`connected` takes both.
    """
    return click.option(
        "--watcher",
        "address",
        envvar="TRIMARAN_WATCHER_ADDRESS",
        show_envvar=True,
        help="Address of a watcher. [default: an embedded watcher, which the command reports]",
    )(credential_options("watcher")(command))


def embedded_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the provider of an embedded watcher to a command.

    The command gets ``provider_flags``, values of settings by name, and ``last``, seconds; 0 if it is not given.
    """

    @click.option("--provider", help="Provider that an embedded watcher reads. [default: the one in the settings]")
    @click.option("--address", "provider_address", help="Address of the provider.")
    @duration_option("--last", default="0", show_default=False, help="Past that an embedded watcher reads, such as 7d.")
    @wraps(command)
    def with_provider(*arguments: Any, provider: str | None, provider_address: str | None, **options: Any) -> None:
        flags = {"provider.name": provider, "provider.address": provider_address}
        command(*arguments, provider_flags=flags, **options)

    return with_provider


def kubernetes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--kube-config`` and ``--kube-context`` to a command.

    The command gets the argument ``kubernetes``, a function without arguments that opens :func:`kubernetes_api`.
    """

    @path_option("--kube-config", help=KUBE_CONFIG_HELP)
    @click.option("--kube-context", default="", help="Context of the kubeconfig. [default: the current context]")
    @wraps(command)
    def with_kubernetes(*arguments: Any, kube_config: Path | None, kube_context: str, **options: Any) -> None:
        command(*arguments, kubernetes=partial(kubernetes_api, kube_config, kube_context), **options)

    return with_kubernetes


def _checked_pod(_context: click.Context, _argument: click.Parameter, pod: str) -> str:
    """Return the argument; exit with a usage error if it is not ``NAMESPACE/NAME``."""
    if [bool(part) for part in pod.split("/")] != [True, True]:
        raise click.BadParameter(f"{pod!r} is not NAMESPACE/NAME, such as default/web-7d4b9")
    return pod


def checked_url(_context: click.Context, _option: click.Parameter, url: str) -> str:
    """Return the URL of an option; exit with a usage error if it does not begin with http:// or https://."""
    if not url.startswith(("http://", "https://")):
        raise click.BadParameter(f"{url!r} does not start with http:// or https://")
    return url


pod_argument = click.argument("pod", metavar="NAMESPACE/NAME", callback=_checked_pod)
"""Argument that names a pod."""


class KubernetesVersion(click.ParamType[str]):
    """Click parameter type: a Kubernetes version whose rules of scoring are known, such as ``1.37`` or ``v1.37.2``."""

    name = "version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Convert the text of an option to ``major.minor``."""
        from scoring.kubernetes_version import known_version

        try:
            return known_version(value)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)


def kubernetes_version_option(command: Command) -> Command:
    """Add ``--kubernetes-version`` to a command, which gets None without the option: see :func:`report_newest_version`.

    The option selects the version of kube-scheduler whose rules of scoring are used.
    """
    from scoring.kubernetes_version import KUBERNETES_VERSIONS

    help_ = (
        f"Version of kube-scheduler whose rules of scoring are used. [default: the newest, {KUBERNETES_VERSIONS[-1]}]"
    )
    return click.option("--kubernetes-version", type=KubernetesVersion(), help=help_)(command)


def report_newest_version() -> None:
    """Print to standard error that the rules of the newest known kube-scheduler apply, as no version was given."""
    from scoring.kubernetes_version import KUBERNETES_VERSIONS

    echo(f"trimaran: no --kubernetes-version: using the rules of kube-scheduler {KUBERNETES_VERSIONS[-1]}", err=True)


def allow_option(command: Command) -> Command:
    """Add ``--allow`` to a command: names of unknown plugins to accept in a KubeSchedulerConfiguration."""
    return click.option(
        "--allow",
        multiple=True,
        metavar="NAME",
        help="Accept a plugin that trimaran does not know, such as one of your own scheduler. Repeatable.",
    )(command)


def kube_scheduler_option(command: Command) -> Command:
    """Add ``--kube-scheduler`` to a command: a kube-scheduler that checks files by starting with them."""
    return path_option(
        "--kube-scheduler",
        metavar="PROGRAM",
        help="Ask this kube-scheduler whether it starts with the file. [default: its rules, as far as they are known]",
    )(command)


def judge(program: Path | None, kubernetes_version: str, allow: Collection[str]) -> "Callable[[bytes], StartVerdict]":
    """Return a function that checks whether kube-scheduler starts with a KubeSchedulerConfiguration.

    Args:
        program: kube-scheduler to start with the file; None to check the file by the known rules of the version.
        kubernetes_version: version of kube-scheduler.
        allow: names of plugins that this kube-scheduler has in addition to those of Kubernetes.
    """
    from trimaran.kube_scheduler.binary import KubeSchedulerProgram
    from trimaran.kube_scheduler.verdict import verdict_of

    if program is not None:
        return KubeSchedulerProgram(program).verdict
    return partial(verdict_of, kubernetes_version=kubernetes_version, others=allow)


_SILENT = logging.NullHandler()  # one object: a logger ignores a handler that it already has


def connected(
    address: str | None, access: "WatcherCredentials | None" = None, settings: "Settings | None" = None
) -> "WatcherClient":
    """Return a client of the watcher at an address; without an address, a client that embeds a watcher.

    An embedded watcher is reported on standard error. Exits with status 2 if the address or the settings are invalid.

    Args:
        address: URL of the watcher; None or empty to embed one.
        access: credentials for the watcher.
        settings: settings of an embedded watcher; None for those of the environment.
    """
    from client.errors import BadSettings
    from client.service import ServiceClient

    # Errors are reported once, at the end. Without a handler Python would also print the watcher's warnings.
    logging.getLogger("watcher").addHandler(_SILENT)
    try:
        if not address:
            from client.library import LibraryClient  # imports the whole watcher

            client = LibraryClient(settings)
            source = f"{client.source}, this machine" if client.source == "Host" else client.source
            message = f"trimaran: no --watcher (TRIMARAN_WATCHER_ADDRESS): embedding one that reads {source}"
            echo(message, err=True)
            return client
        return ServiceClient(address, **access) if access else ServiceClient(address)
    except (BadSettings, ValueError) as error:
        fail(error, status=2)


@contextlib.contextmanager
def kubernetes_api(kube_config: Path | None, context: str) -> Iterator["KubernetesApi"]:
    """Yield a client of the Kubernetes API; exit with status 2 if it is not configured, with 1 if a request fails.

    Args:
        kube_config: kubeconfig file; None for the one that kubectl would use, or in a pod its service account.
        context: context of the kubeconfig; empty for the current one.
    """
    from runtime.http.credentials import InvalidApiServerConfig
    from runtime.http.failures import describe
    from runtime.kubernetes.api import REQUEST_FAILURES, ApiServerConfig, KubernetesApi, default_kubeconfig

    names = {"kube_config": "--kube-config", "context": "--kube-context"}
    try:
        config = ApiServerConfig(kube_config=kube_config or default_kubeconfig(), context=context, option_names=names)
        with contextlib.closing(KubernetesApi(config)) as api:
            api.connect()
            yield api
    except InvalidApiServerConfig as error:
        fail(error, 2)
    except REQUEST_FAILURES as error:
        fail(f"the Kubernetes API cannot be used: {describe(error).reason}", 1)


@contextlib.contextmanager
def scheduler_file_or_exit(path: Path, allow_with: str = "--allow ") -> "Iterator[SchedulerFile]":
    """Yield a KubeSchedulerConfiguration file; exit with status 2 if the file or the ``with`` block raises ValueError.

    Args:
        path: the file.
        allow_with: the command's option that allows an unknown plugin, for error messages; "" if there is none.
    """
    from trimaran.scheduler_file import scheduler_file

    try:
        with scheduler_file(path, allow_with) as file:
            yield file
    except ValueError as error:
        fail(error, 2)


def renamed_option(old: str, new: str) -> Callable[[Command], Command]:
    """Return a decorator that makes a command refuse the old name of an option, and name the new one."""

    def refuse(_context: click.Context, _option: click.Parameter, value: str | None) -> None:
        if value is not None:
            raise click.UsageError(f"{old} was renamed: use {new}")

    return click.option(old, hidden=True, expose_value=False, callback=refuse)


def fail(error: Exception | str, status: int) -> NoReturn:
    """Print an error to standard error, in one line unless it lists errors of settings, and exit with a status."""
    from client.errors import AccessDenied, BadSettings

    hint = "; see --token-file and --client-certificate" if isinstance(error, AccessDenied) else ""
    write = echo_lines if isinstance(error, BadSettings) else echo
    write(f"trimaran: {error}{hint}", err=True)
    raise SystemExit(status)
