"""What a provider is, and how one is found.

A provider is a class with two methods. Write ``fetch`` and ``check`` when the source has history, ``sample`` and
``check`` when it only knows the present. Its constructor takes the :class:`~watcher.settings.Settings`. Announce it
under the entry point group ``trimaran.providers`` and it can be named in METRICS_PROVIDER_NAME: docs/extending.md
has a whole one. Two things are optional: a method ``close()``, called at the end, and an attribute ``address``, the URL
that ``trimaran doctor`` shall try to reach before it calls ``check()``.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol, runtime_checkable

from runtime import masking
from runtime.errors import SettingsError
from runtime.http.gather import Deadline
from watcher.findings import Finding, Kind
from watcher.model import NodeMetrics, Window
from watcher.settings import ProviderSettings, Settings
from watcher.windows.samples import Reading, Sample, Samples

__all__ = [
    "ENTRY_POINT_GROUP",
    "Check",
    "Fetched",
    "ProviderFactory",
    "Reading",
    "Sample",
    "SampleProvider",
    "Samples",
    "WindowProvider",
    "check_providers",
    "close_provider",
    "known_providers",
    "open_provider",
    "unverified",
]

ENTRY_POINT_GROUP = "trimaran.providers"


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a fetch brought.

    Attributes:
        nodes: node name to its metrics; empty means that the provider answered and knows no node.
        findings: what went wrong along the way without making the fetch worthless.
        source: the provider that answered, when that is not the one that was asked.
        newest: node to the time of its newest sample by the source's own clock, unix seconds, where that is known.
        beside: what a second source says of the nodes, to hold these metrics against; it is not served.
    """

    nodes: Mapping[str, NodeMetrics]
    findings: tuple[Finding, ...] = ()
    source: str = ""
    newest: Mapping[str, float] = field(default_factory=dict)
    beside: Mapping[str, NodeMetrics] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Check:
    """One step of a check.

    Attributes:
        step: what was tried.
        ok: whether it worked.
        message: what came of it.
        setting: the setting that mends it, such as ``provider.address``.
        details: lines for whoever wants to know more: which series became which node, say.
    """

    step: str
    ok: bool
    message: str
    setting: str = ""
    details: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Leave out what must not be said: much of it comes from outside."""
        masking.say_safely(self, "step", "message", "details")


@runtime_checkable
class WindowProvider(Protocol):
    """A source with history: it computes a window itself."""

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return all nodes' metrics over the window.

        Called from several threads at once, one for each window.

        Raises:
            ProviderError: nothing could be had; the message says from where, why, and the way out.
        """
        ...

    def check(self) -> Iterator[Check]:
        """Yield the steps that lead to metrics, each tried for real, stopping where going on makes no sense."""
        ...


@runtime_checkable
class SampleProvider(Protocol):
    """A source that only knows the present. The watcher keeps its samples and computes windows from them."""

    def sample(self, deadline: Deadline) -> Mapping[str, Sample]:
        """Return all nodes' present state: a dict, or :class:`Samples` where there are findings to report.

        Raises:
            ProviderError: nothing could be had.
        """
        ...

    def check(self) -> Iterator[Check]:
        """Yield the steps that lead to metrics, as :meth:`WindowProvider.check` does."""
        ...


ProviderFactory = Callable[[Settings], WindowProvider | SampleProvider]


def close_provider(provider: WindowProvider | SampleProvider) -> None:
    """Call a provider's ``close()`` where it has one."""
    close = getattr(provider, "close", None)
    if close is not None:
        close()


def unverified(settings: ProviderSettings) -> Finding | None:
    """Return the finding that the provider's certificate is not verified, where there is one and that is so."""
    if not settings.insecure_skip_verify or (settings.address or "").startswith("http://"):
        return None
    return Finding(
        Kind.UNVERIFIED,
        f"the certificate of {settings.name} is not verified: whoever is in between can read what is sent, tokens too, "
        "and answer in its place; set provider.ca_file instead of provider.insecure_skip_verify",
    )


def known_providers() -> dict[str, EntryPoint]:
    """Return all installed providers by name."""
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}


def check_providers(settings: Settings) -> None:
    """Build every provider that the settings name, fallbacks too, and close it again.

    Raises:
        SettingsError: with the problems of all that cannot be built.
    """
    problems: list[str] = []
    for view in settings.for_each_provider():
        try:
            close_provider(open_provider(view))
        except SettingsError as error:
            problems += error.problems
    if problems:
        raise SettingsError(problems)


def open_provider(settings: Settings) -> WindowProvider | SampleProvider:
    """Build the provider that the settings name. Nothing is contacted yet.

    Raises:
        SettingsError: no such provider, or it lacks a setting or a package it needs.
    """
    name, known = settings.provider.name, known_providers()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"; did you mean {close[0]}?" if close else "."
        fallbacks = (f"fallback.providers[{number}].name" for number, each in enumerate(settings.fallback.providers)
                     if each is settings.provider)  # fmt: skip
        where = next(fallbacks, "provider.name (METRICS_PROVIDER_NAME)")
        problem = f"{where} = {name[:80]!r}: there is no such provider{hint}"
        raise SettingsError([f"{problem} Known: {', '.join(sorted(known))}"])
    try:
        factory: ProviderFactory = known[name].load()
    except ImportError as error:
        missing = (error.name or name).partition(".")[0]
        raise SettingsError([f"provider {name} lacks a package: {error}; pip install {missing}"]) from error
    return factory(settings)
