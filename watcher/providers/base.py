"""Provider interface, and the lookup of providers by name.

A provider is a class with two methods: ``fetch`` and ``check`` if the source has history, ``sample`` and ``check`` if
the source only knows the present. The constructor takes the :class:`~watcher.settings.Settings`. Register the class
under the entry point group ``trimaran.providers``, then METRICS_PROVIDER_NAME can name it: docs/extending.md has a
complete example. Three members are optional: a method ``close()``, called at the end, and two attributes for
``trimaran doctor``: ``address``, the URL that it tries to reach before it calls ``check()``, and ``pressure_absence``,
the reason why nodes have no pressure, if the provider reads pressure.
"""

import contextlib
import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from runtime import masking
from runtime.errors import SettingsError, SettingsProblems
from runtime.extras import install_command
from runtime.http.gather import Deadline
from runtime.settings.fields import parsed_json
from watcher.findings import Finding, Kind
from watcher.model import NodeMetrics, Window
from watcher.settings import ProviderSettings, Settings
from watcher.windows.samples import Reading, Sample, Samples

if TYPE_CHECKING:
    from watcher.windows.container_use import ContainerUse  # imports numpy
    from watcher.windows.past_container_use import PastContainerUse  # imports numpy
    from watcher.windows.past_metrics import PastMetrics  # imports numpy

__all__ = [
    "ENTRY_POINT_GROUP",
    "Check",
    "Fetched",
    "ManifestProvider",
    "PastPodUseProvider",
    "PastProvider",
    "PodUseProvider",
    "ProviderFactory",
    "Reading",
    "Sample",
    "SampleProvider",
    "Samples",
    "SeriesProvider",
    "WindowProvider",
    "check_providers",
    "close_provider",
    "known_providers",
    "open_provider",
    "unverified",
]

ENTRY_POINT_GROUP = "trimaran.providers"
_NAME_SETTING = "provider.name (METRICS_PROVIDER_NAME)"
_EXTRAS = frozenset({"signalfx"})  # packages of a provider that the extra of the same name installs


@dataclass(frozen=True, slots=True)
class Fetched:
    """Result of a fetch.

    Attributes:
        nodes: node name to its metrics; empty if the provider answered but has no nodes.
        findings: problems that leave the rest of the result usable.
        source: name of the provider that answered, if it is not the configured one.
        newest: node name to the time of its newest sample by the source's own clock, Unix seconds, where known.
        second_source: node name to metrics from a second source, for comparison; they are not served.
    """

    nodes: Mapping[str, NodeMetrics]
    findings: tuple[Finding, ...] = ()
    source: str = ""
    newest: Mapping[str, float] = field(default_factory=dict)
    second_source: Mapping[str, NodeMetrics] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Check:
    """One step of a provider's check.

    Attributes:
        step: name of the step.
        ok: whether the step succeeded.
        message: the result of the step.
        setting: the setting to change if the step failed, such as ``provider.address``.
        details: additional lines, such as the node of each series.
    """

    step: str
    ok: bool
    message: str
    setting: str = ""
    details: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Redact secrets and control characters: much of the text comes from other systems."""
        masking.redact_fields(self, "step", "message", "details")


@runtime_checkable
class WindowProvider(Protocol):
    """Provider for a source with history: it computes windows itself."""

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return all nodes' metrics over the window.

        Called from several threads at the same time, one for each window.

        Raises:
            ProviderError: the source returned nothing usable; the message names the source, the reason and the remedy.
        """
        ...

    def check(self) -> Iterator[Check]:
        """Yield the steps from the address to the metrics, each with a real request.

        The provider stops after a failed step if no further step can succeed.
        """
        ...


@runtime_checkable
class SampleProvider(Protocol):
    """Provider for a source that only knows the present.

    The watcher stores its samples and computes windows from them.
    """

    def sample(self, deadline: Deadline) -> Mapping[str, Sample]:
        """Return the present state of all nodes: a dict, or :class:`Samples` if there are findings to report.

        Raises:
            ProviderError: the source returned nothing usable.
        """
        ...

    def check(self) -> Iterator[Check]:
        """Yield the steps from the address to the metrics, as :meth:`WindowProvider.check` does."""
        ...


@runtime_checkable
class PodUseProvider(Protocol):
    """Second, optional ability of a provider: the use of every container in the cluster."""

    def pod_use(self, window: Window, deadline: Deadline) -> "ContainerUse":
        """Return the CPU and memory use of every container over the window.

        A provider whose source only knows the present returns the newest measurement of each container. The method is
        called by one thread, at the same time as the other methods; its failure does not affect the nodes.

        Raises:
            ProviderError: the source returned nothing usable; the message names the source, the reason and the remedy.
        """
        ...


@runtime_checkable
class PastProvider(Protocol):
    """Third, optional ability of a provider: the metrics of windows that ended in the past."""

    def past(self, window: str, ends: range, deadline: Deadline) -> "PastMetrics":
        """Return the metrics that fetches at past times would have returned.

        The method is called by one thread, between fetches; its failure does not affect the nodes.

        Args:
            window: length of the windows, such as ``15m``.
            ends: ends of the windows, Unix seconds.
            deadline: time at which everything must have been read.

        Raises:
            ProviderError: the source returned nothing usable; the message names the source, the reason and the remedy.
                The caller tries a shorter range.
        """
        ...


@runtime_checkable
class PastPodUseProvider(Protocol):
    """Fourth, optional ability of a provider: the past use of every container, for the first start of a watcher."""

    def past_pod_use(self, ends: range, timeout_seconds: float) -> "Iterator[tuple[tuple[str, ...], PastContainerUse]]":
        """Yield the use of all containers, also of pods that have ended, in parts of bounded size.

        The parts are read while the caller iterates, by one thread.

        Args:
            ends: ends of the steps, Unix seconds, at most a day.
            timeout_seconds: timeout of each request.

        Yields:
            Namespaces, and the use of some of their containers; each container is in one part.

        Raises:
            ProviderError: the source returned nothing usable; the message names the source, the reason and the remedy.
        """
        ...


@runtime_checkable
class SeriesProvider(Protocol):
    """Provider of a source with PromQL, which may have the series of kube-state-metrics, too."""

    def series(self, promql: str, deadline: Deadline) -> Iterable[tuple[Mapping[str, str], float]]:
        """Return the labels and the present value of each series of a PromQL expression.

        Raises:
            ProviderError: the query failed.
        """
        ...


@runtime_checkable
class ManifestProvider(Protocol):
    """Provider with invented pods, which no cluster has."""

    def pod_manifests(self) -> Iterable[Mapping[str, Any]]:
        """Return the manifests of the pods, in the form of the Kubernetes API."""
        ...


ProviderFactory = Callable[[Settings], WindowProvider | SampleProvider]


def close_provider(provider: WindowProvider | SampleProvider | PodUseProvider | PastPodUseProvider) -> None:
    """Call the provider's ``close()`` if it has one."""
    close = getattr(provider, "close", None)
    if close is not None:
        close()


def unverified(settings: ProviderSettings) -> Finding | None:
    """Return the finding that the provider's TLS certificate is not verified, or None if it is verified or not used."""
    if not settings.insecure_skip_verify or (settings.address or "").startswith("http://"):
        return None
    return Finding(
        Kind.UNVERIFIED,
        f"the certificate of {settings.name} is not verified: an attacker on the network can read the traffic, with "
        "its tokens, and forge responses; set provider.ca_file instead of provider.insecure_skip_verify",
    )


def known_providers() -> dict[str, EntryPoint]:
    """Return the entry points of all installed providers by name."""
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}


def unknown_names(values: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a problem for each provider name that does not exist, from settings that need not be valid.

    Args:
        values: unchecked values of settings, by section and key.
    """
    name = values.get("provider", {}).get("name")
    fallbacks = values.get("fallback", {}).get("providers", [])
    with contextlib.suppress(ValueError):
        fallbacks = parsed_json(fallbacks)
    names = {_NAME_SETTING: name}
    for number, fallback in enumerate(fallbacks if isinstance(fallbacks, list) else []):
        names[f"fallback.providers[{number}].name"] = fallback.get("name") if isinstance(fallback, dict) else None
    known = known_providers()
    return [_unknown(setting, name) for setting, name in names.items() if isinstance(name, str) and name not in known]


def _unknown(setting: str, name: str) -> str:
    known = known_providers()
    matches = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {matches[0]}?" if matches else "."
    return f"{setting} = {name[:80]!r}: there is no such provider{hint} Known: {', '.join(sorted(known))}"


def check_providers(settings: Settings) -> None:
    """Build and close every provider in the settings, fallbacks included.

    Raises:
        SettingsError: a provider cannot be built; the error lists the problems of all of them.
    """
    problems = SettingsProblems()
    for view in settings.for_each_provider():
        with problems.collect():
            close_provider(open_provider(view))
    problems.raise_any()


def open_provider(settings: Settings) -> WindowProvider | SampleProvider:
    """Build the provider in the settings. It does not connect yet.

    Raises:
        SettingsError: the provider does not exist, or lacks a setting or a package.
    """
    name, known = settings.provider.name, known_providers()
    if name not in known:
        fallbacks = (f"fallback.providers[{number}].name" for number, fallback in enumerate(settings.fallback.providers)
                     if fallback is settings.provider)  # fmt: skip
        raise SettingsError([_unknown(next(fallbacks, _NAME_SETTING), name)])
    try:
        factory: ProviderFactory = known[name].load()
    except ImportError as error:
        missing = (error.name or name).partition(".")[0]
        command = install_command(missing) if missing in _EXTRAS else f"pip install {missing}"
        raise SettingsError([f"provider {name} lacks a package: {error}; {command}"]) from error
    return factory(settings)
