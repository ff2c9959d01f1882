"""A whole watcher from settings: store, provider, loop. Used by the service and by the library client alike."""

import time
from collections.abc import Callable
from pathlib import Path

from watcher.providers.base import SampleProvider, WindowProvider, open_provider
from watcher.sampling import Sampled
from watcher.settings import Settings
from watcher.store import Store
from watcher.telemetry import Telemetry
from watcher.watching import Watcher


def open_watcher(
    settings: Settings,
    store_path: Path | None,
    telemetry: Telemetry | None = None,
    provider: WindowProvider | SampleProvider | None = None,
    clock: Callable[[], float] = time.time,
) -> Watcher:
    """Build a watcher that is not started yet; its ``stop()`` closes all that was opened here.

    Args:
        settings: all settings.
        store_path: the database file, or None to keep everything in memory.
        telemetry: where to count, shared with the REST API when there is one.
        provider: used instead of the one that the settings name.
        clock: unix time; tests inject their own.

    Raises:
        SettingsError: the settings name no usable provider.
    """
    source = settings.provider.name
    opened = provider if provider is not None else open_provider(settings)
    store = Store(store_path, keep_hours=settings.store.keep_hours, max_megabytes=settings.store.max_megabytes)
    windows: WindowProvider = (
        opened
        if isinstance(opened, WindowProvider)
        else Sampled(opened, settings.watch, store, source=source, clock=clock)
    )
    return Watcher(
        windows,
        store,
        settings.watch,
        source=source,
        dialect=settings.server.dialect,
        telemetry=telemetry,
        clock=clock,
    )
