"""All checks in order: of each provider, the default window, and the store."""

import time
import traceback
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import PurePath
from urllib.parse import urlsplit

from runtime.errors import SettingsError
from watcher.doctor.address import examine_address, expects_tls
from watcher.doctor.metrics import examine_metrics
from watcher.doctor.pods import examine_pods
from watcher.doctor.store_check import examine_store
from watcher.providers.base import (
    Check,
    PastProvider,
    SampleProvider,
    WindowProvider,
    close_provider,
    known_providers,
    open_provider,
)
from watcher.settings import Settings, WatchSettings


def examine(settings: Settings, clock: Callable[[], float] = time.time, nodes: Collection[str] = ()) -> Iterator[Check]:
    """Yield each provider's steps up to its first failed one, then those of the default window, pods and the store.

    An exception of a provider, which may be in another package, is a failed step.

    Args:
        settings: all settings.
        clock: returns the Unix time.
        nodes: names of the cluster's nodes, to compare with the nodes that have metrics; empty if unknown.
    """
    failed: set[str] = set()
    for view in settings.for_each_provider():
        name = view.provider.name
        for check in _guarded(name, "provider", _examine_provider(view, clock, nodes)):
            if not check.ok:
                failed.add(name)
            yield replace(check, step=f"{name}: {check.step}", setting="" if check.ok else check.setting)
    second = settings.corroborating()
    if second is not None and second.provider not in (view.provider for view in settings.for_each_provider()):
        yield _examine_second(second)
    yield _name_default_window(settings.watch)
    yield from _guarded(settings.provider.name, "use of pods", examine_pods(settings, clock(), failed))
    yield examine_store(settings.store.path)


def _examine_second(settings: Settings) -> Check:
    """Return a step about the second source for comparison; it never fails, as that source is optional."""
    steps = _examine_provider(settings, time.time, ())
    failed = [check for check in _guarded(settings.provider.name, "provider", steps) if not check.ok]
    message = f"CPU and Memory are compared with {settings.provider.name}"
    if failed:
        message = (
            f"metrics are not compared with a second source, as {settings.provider.name} does not work: "
            f"{failed[0].step}: {failed[0].message} (quality.corroborate = off disables the comparison)"
        )
    return Check("corroborate", ok=True, message=message)


def _name_default_window(watch: WatchSettings) -> Check:
    """Return a step that names the default window, which scores use; it never fails."""
    served = f"{watch.fallback_order()[0]}, of {', '.join(watch.windows)}"
    reason = "set by watch.default_window" if watch.default_window else "served to requests that name no window"
    return Check("default window", ok=True, message=f"{served}: {reason}")


def _name_history_start(provider: WindowProvider | SampleProvider, settings: Settings) -> Check:
    """Return a step about the start of the history; it never fails, as every history grows from the first fetch on."""
    hours = min(settings.store.backfill_hours, settings.store.keep_hours)
    if not isinstance(provider, PastProvider):
        message = f"it begins with the first fetch, as the provider {settings.provider.name} cannot read the past"
    elif not settings.store.history_megabytes:
        message = "the past is not read (store.history_megabytes)"
    else:
        message = f"gaps in the last {hours:g} hours are filled from {settings.provider.name}"
    return Check("history", ok=True, message=message)


def _guarded(provider: str, step: str, steps: Iterator[Check]) -> Iterator[Check]:
    """Yield the given steps, and a failed step of the given name if the provider raises an unexpected exception."""
    try:
        yield from steps
    except Exception as error:  # noqa: BLE001  a provider in another package may raise anything
        yield Check(step, ok=False, message=_unexpected(provider, error), setting="provider.name")


def _unexpected(provider: str, error: Exception) -> str:
    """Return a message with the place of a provider's error, and the package to report it to."""
    entry = known_providers().get(provider)
    package = f"the package {entry.dist.name} {entry.dist.version}" if entry and entry.dist else "its package"
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{PurePath(last.filename).name}, line {last.lineno}"
    return f"failed unexpectedly: {type(error).__name__}: {error} ({where}); report it to the authors of {package}"


def _examine_provider(settings: Settings, clock: Callable[[], float], nodes: Collection[str]) -> Iterator[Check]:
    try:
        provider = open_provider(settings)
    except SettingsError as error:
        for problem in error.problems:
            yield Check("settings", ok=False, message=problem, setting="provider")
        return
    try:
        address = urlsplit(str(getattr(provider, "address", "") or ""))
        for check in examine_address(address, settings.provider) if address.geturl() else ():
            yield check
            if not check.ok:
                return
        failed = False
        for check in provider.check():
            failed |= not check.ok
            if not check.ok and check.setting.startswith("provider."):
                if expects_tls(address):
                    host = address.netloc.rpartition("@")[2]
                    message = f"{host} speaks TLS: should the address begin with https:// instead?"
                    check = replace(check, message=message, setting="provider.address")  # noqa: PLW2901
                yield check
                return
            yield check
        yield from examine_metrics(provider, settings, nodes, clock, has_failed_step=failed)
        yield _name_history_start(provider, settings)
    finally:
        close_provider(provider)
