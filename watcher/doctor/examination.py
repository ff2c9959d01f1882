"""All steps, one after the other: for each provider, and for the store."""

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from urllib.parse import urlsplit

from runtime.errors import SettingsError
from watcher.doctor.address import examine_address, expects_tls
from watcher.doctor.metrics import examine_metrics
from watcher.doctor.store_check import examine_store
from watcher.providers.base import Check, close_provider, open_provider
from watcher.settings import Settings


def examine(settings: Settings, clock: Callable[[], float] = time.time, nodes: Collection[str] = ()) -> Iterator[Check]:
    """Yield every step, for each provider and for the store; a provider whose step failed is not asked further.

    Args:
        settings: all settings.
        clock: unix time.
        nodes: the names of the cluster's nodes, to hold those with metrics against; empty where they are not known.
    """
    for view in settings.for_each_provider():
        name = view.provider.name
        for check in _examine_provider(view, clock, nodes):
            yield replace(check, step=f"{name}: {check.step}", setting="" if check.ok else check.setting)
    second = settings.corroborating()
    if second is not None and second.provider not in (view.provider for view in settings.for_each_provider()):
        yield _examine_second(second)
    yield examine_store(settings.store.path)


def _examine_second(settings: Settings) -> Check:
    """Tell whether the source that corroborates can be reached; one is not needed, so this never fails."""
    failed = [check for check in _examine_provider(settings, time.time, ()) if not check.ok]
    message = f"CPU and Memory are held against {settings.provider.name}"
    if failed:
        message = (
            f"metrics are judged by themselves alone, as {settings.provider.name} does not corroborate them: "
            f"{failed[0].step}: {failed[0].message} (quality.corroborate = off does not ask it)"
        )
    return Check("corroborate", ok=True, message=message)


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
                    message = f"{address.netloc.rpartition('@')[2]} speaks TLS: is it https:// instead of http://?"
                    check = replace(check, message=message, setting="provider.address")  # noqa: PLW2901
                yield check
                return
            yield check
        yield from examine_metrics(provider, settings, nodes, clock, told=failed)
    finally:
        close_provider(provider)
