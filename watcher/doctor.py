"""The step-by-step checks: is the provider there, does it let us in, does it know the nodes, are its values right?"""

import logging
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import requests

from watcher import duration
from watcher.errors import ProviderError, SettingsError
from watcher.findings import Finding
from watcher.model import Window
from watcher.providers.base import Check, SampleProvider, Samples, WindowProvider, close_provider, open_provider
from watcher.quality import analyzer
from watcher.settings import ProviderSettings, Settings, without_credentials
from watcher.store.lock import FileLock
from watcher.transport.gather import Deadline

_NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs", "lustre"}
_CONNECT_SECONDS = 5.0
_MAGIC = b"SQLite format 3\0"  # what such a file begins with
_PAGE_BYTES = 4096
_SHOWN = 5  # findings of one kind
_AGAIN_SECONDS = 300.0
_log = logging.getLogger(__name__)


def examine(settings: Settings, clock: Callable[[], float] = time.time) -> Iterator[Check]:
    """Yield every step, for each provider and for the store; a provider whose step failed is not asked further.

    Args:
        settings: all settings.
        clock: unix time.
    """
    for view in settings.for_each_provider():
        name = view.provider.name
        for check in _examine_provider(view, clock):
            yield Check(f"{name}: {check.step}", check.ok, check.message, "" if check.ok else check.setting)
    yield _examine_store(settings.store.path)


class Doctor:
    """Runs all checks in the background when the service starts, and again while something is wrong."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._problems: tuple[str, ...] = ()
        self._stop = threading.Event()

    def start(self) -> None:
        """Begin; the thread ends by itself when all is well."""
        threading.Thread(target=self._run, name="doctor", daemon=True).start()

    def stop(self) -> None:
        """Do not check again."""
        self._stop.set()

    def problems(self) -> tuple[str, ...]:
        """Return the steps that failed when they were tried last."""
        return self._problems

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                failed = [check for check in examine(self._settings) if not check.ok]
            except Exception:  # noqa: BLE001  a provider's defect must not end the service's health
                _log.exception("the checks failed unexpectedly")
                return
            problems = tuple(f"{check.step}: {check.message} ({check.setting})" for check in failed)
            for problem in problems:
                if problem not in self._problems:
                    _log.warning("check failed", extra={"check": problem})
            self._problems = problems
            if not problems or self._stop.wait(_AGAIN_SECONDS):
                return


def _examine_provider(settings: Settings, clock: Callable[[], float]) -> Iterator[Check]:
    try:
        provider = open_provider(settings)
    except SettingsError as error:
        for problem in error.problems:
            yield Check("settings", ok=False, message=problem, setting="provider")
        return
    try:
        address = str(getattr(provider, "address", "") or "")
        for check in _examine_address(urlsplit(address), settings.provider) if address else ():
            yield check
            if not check.ok:
                return
        for check in provider.check():
            yield check
            if not check.ok and check.setting.startswith("provider."):
                return
        yield from _examine_metrics(provider, settings, clock)
    finally:
        close_provider(provider)


def _examine_address(address: SplitResult, settings: ProviderSettings) -> Iterator[Check]:
    proxy = requests.utils.select_proxy(address.geturl(), requests.utils.get_environ_proxies(address.geturl()))
    if proxy:
        yield Check("proxy", ok=True, message=f"requests go through {without_credentials(proxy)}")
        return
    host = address.hostname or ""
    port = address.port or (443 if address.scheme == "https" else 80)
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except OSError as error:
        yield Check("DNS", ok=False, message=f"{host}: {error.strerror or error}", setting="provider.address")
        return
    yield Check("DNS", ok=True, message=f"{host} is {', '.join(sorted(found))}")
    try:
        connection = socket.create_connection((host, port), _CONNECT_SECONDS)
    except OSError as error:
        message = f"{host} port {port}: {error.strerror or error}"
        yield Check("TCP", ok=False, message=message, setting="provider.address")
        return
    with connection:
        yield Check("TCP", ok=True, message=f"{host} port {port} accepts connections")
        if address.scheme == "https":
            yield _examine_tls(connection, host, settings)


def _examine_tls(connection: socket.socket, host: str, settings: ProviderSettings) -> Check:
    try:
        context = ssl.create_default_context(cafile=str(settings.ca_file) if settings.ca_file else None)
        if settings.client_certificate is not None:
            context.load_cert_chain(settings.client_certificate, settings.client_key)
        if settings.insecure_skip_verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(connection, server_hostname=host) as secured:
            trust = "not verified (insecure_skip_verify)" if settings.insecure_skip_verify else "trusted"
            return Check("TLS", ok=True, message=f"{secured.version()}, the certificate is {trust}")
    except ssl.SSLCertVerificationError as error:
        return Check("TLS", ok=False, message=f"{host}: {error.verify_message}", setting="provider.ca_file")
    except (OSError, ValueError) as error:
        return Check("TLS", ok=False, message=f"{host}: {error}", setting="provider.address")


def _examine_metrics(
    provider: WindowProvider | SampleProvider, settings: Settings, clock: Callable[[], float]
) -> Iterator[Check]:
    """Fetch for real, and judge what came as the watcher would."""
    shortest = min(settings.watch.windows, key=duration.seconds)
    now = int(clock())
    deadline = Deadline.after(settings.watch.fetch_timeout_seconds)
    try:
        if not isinstance(provider, WindowProvider):
            yield from _examine_samples(provider, deadline, clock)
            return
        fetched = provider.fetch(Window(shortest, now - duration.seconds(shortest), now), deadline)
    except ProviderError as error:
        yield Check(f"fetch {shortest}", ok=False, message=str(error), setting="provider")
        return
    nodes, findings = analyzer.clean(fetched.nodes, shortest)
    yield Check(f"fetch {shortest}", ok=bool(nodes), message=f"{len(nodes)} nodes", setting="provider")
    yield from _judge((*fetched.findings, *findings))


def _examine_samples(provider: SampleProvider, deadline: Deadline, clock: Callable[[], float]) -> Iterator[Check]:
    taken = provider.sample(deadline)
    yield Check("sample", ok=bool(taken), message=f"{len(taken)} nodes", setting="provider")
    now = clock()
    ages = [now - sample.timestamp for sample in taken.values()]
    if ages:
        message = f"samples are {min(ages):.0f} to {max(ages):.0f} s old"
        fresh = max(map(abs, ages)) < 180  # a metrics server measures every minute at the latest
        hint = "" if fresh else "; is the source's clock right?"
        yield Check("freshness", ok=fresh, message=message + hint, setting="provider.address")
    yield from _judge(taken.findings if isinstance(taken, Samples) else ())


def _judge(findings: Iterable[Finding]) -> Iterator[Check]:
    """Yield a failed step for each kind of finding."""
    by_kind: dict[str, list[str]] = {}
    for finding in findings:
        about = " ".join(filter(None, (finding.node, finding.metric)))
        by_kind.setdefault(finding.kind, []).append(f"{about}: {finding.message}" if about else finding.message)
    for kind, messages in by_kind.items():
        more = f" (and {len(messages) - _SHOWN} more)" if len(messages) > _SHOWN else ""
        yield Check(kind.replace("_", " "), ok=False, message="; ".join(messages[:_SHOWN]) + more, setting="provider")


def _examine_store(path: Path) -> Check:
    folder = next((each for each in path.parents if each.exists()), Path("/"))
    kind = _file_system(folder.resolve())
    if kind in _NETWORK_FILE_SYSTEMS:
        message = f"{path} is on {kind}: SQLite needs a local disk"
        return Check("store", ok=False, message=message, setting="store.path")
    try:
        state = _try_store(path, folder)
    except OSError as error:
        message = f"{path} cannot be used: {error.strerror or error}; nothing would survive a restart"
        return Check("store", ok=False, message=message, setting="store.path")
    return Check("store", ok=True, message=f"{path} is on a local disk ({kind or 'unknown'}){state}")


def _try_store(path: Path, folder: Path) -> str:
    """Try what a watcher needs, and leave nothing behind; return what else there is to say.

    A file that a watcher has open is not opened: where that is in this process, closing it again would end the locks
    that SQLite has on it.
    """
    with tempfile.TemporaryFile(dir=folder) as file:  # rights alone do not tell: root has them where nobody can write
        file.write(bytes(_PAGE_BYTES))
    with FileLock(path) as lock:
        if not lock.take(create=False):
            return "; a watcher uses it"
        if path.exists():
            with path.open("r+b") as file:
                head = file.read(len(_MAGIC))
            if head and head != _MAGIC:
                raise OSError("it is no SQLite database, and would be set aside")
    return ""


def _file_system(folder: Path) -> str:
    """Return the type of the file system that holds a folder, as Linux tells it; empty where it cannot be told."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    except OSError:
        return ""
    holding = {where: kind for _, where, kind, *_ in mounts if folder.is_relative_to(where)}
    return holding[max(holding, key=len)] if holding else ""
