"""Construction of a watcher from settings: store, providers, and the loops of nodes and pods.

The service and the library client start the same watcher.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.errors import SettingsError
from watcher.pipeline.backfill import Backfill
from watcher.pipeline.origins import origins
from watcher.pipeline.watcher import Watcher
from watcher.providers.base import (
    PastProvider,
    SampleProvider,
    WindowProvider,
    close_provider,
    open_provider,
    unverified,
)
from watcher.providers.corroborated import Corroborated
from watcher.providers.failover import Failover
from watcher.providers.sampled import Sampled
from watcher.quality.judged_window import judged_window
from watcher.settings import Settings
from watcher.store import Store
from watcher.telemetry import WatcherTelemetry
from watcher.usage.pod_usage import PodUsage
from watcher.wire import Dialect

if TYPE_CHECKING:
    from watcher.usage.sources.api_pods import ApiPods

_log = logging.getLogger(__name__)


def open_watcher(
    settings: Settings,
    store_path: Path | None,
    telemetry: WatcherTelemetry | None = None,
    provider: WindowProvider | SampleProvider | None = None,
    clock: Callable[[], float] = time.time,
    dialect: Dialect = Dialect.DOCUMENTED,
    *,
    pods: "ApiPods | None" = None,
    recommends: bool = False,
) -> Watcher:
    """Build a watcher without starting its loops. The watcher's ``stop()`` closes its store and its providers.

    Args:
        settings: all settings.
        store_path: the database file, or None to keep everything in memory.
        telemetry: counters of fetches, shared with the REST API if there is one.
        provider: provider to use instead of the providers in the settings.
        clock: function that returns Unix seconds; tests pass their own.
        dialect: JSON dialect in which snapshots are encoded when they are published.
        pods: source of the running pods, if this process follows them already; the watcher closes it.
        recommends: whether to recommend requests, which takes the cluster's list of autoscalers.

    Raises:
        SettingsError: the settings name no usable provider. Only a given ``provider`` is not closed then.
    """
    views = [settings] if provider is not None else settings.for_each_provider()
    corroborating = settings.corroborating() if provider is None else None
    names = [view.provider.name for view in views]
    additional = [corroborating] if corroborating is not None and corroborating.provider.name not in names else []
    # The watcher closes what is opened here. If it cannot be built, this block does, or the store would stay locked.
    with contextlib.ExitStack() as undo:
        opened = [provider] if provider is not None else _open_all(views, undo)
        store = Store(
            store_path,
            keep_hours=settings.store.keep_hours,
            max_megabytes=settings.store.max_megabytes,
            history_megabytes=settings.store.history_megabytes,
            origins=origins([*views, *additional]),
        )
        undo.callback(store.close)

        def windowed(name: str, each: WindowProvider | SampleProvider) -> WindowProvider:
            if isinstance(each, WindowProvider):
                return each
            return Sampled(each, settings.watch, store, source=name, clock=clock)

        remembering = ((name, each) for name, each in zip(names, opened, strict=True) if isinstance(each, PastProvider))
        past_name, past = next(remembering, (names[0], None))
        hours = min(settings.store.backfill_hours, settings.store.keep_hours)
        windows = [windowed(name, each) for name, each in zip(names, opened, strict=True)]
        first = windows[0] if len(windows) == 1 else Failover(list(zip(names, windows, strict=True)))
        if corroborating is not None:
            second = corroborating.provider.name
            fallbacks = dict(zip(names[1:], windows[1:], strict=True))
            second_provider = fallbacks.get(second) or _open_second(corroborating, windowed, undo)
            if second_provider is not None:
                judged = judged_window(settings.watch.windows, settings.watch.interval_seconds)
                first = Corroborated((names[0], first), (second, second_provider), judged)
        watcher = Watcher(
            first,
            store,
            settings.watch,
            settings.quality,
            source=names[0],
            fallback_sources=names[1:],
            standing=[finding for view in views if (finding := unverified(view.provider)) is not None],
            dialect=dialect,
            telemetry=telemetry,
            usage=PodUsage(settings, store, names[0], pods=pods, recommends=recommends, clock=clock),
            backfill=Backfill(past, past_name, store, names, settings.watch, hours),
            clock=clock,
        )
        undo.pop_all()
    return watcher


def _open_second(
    settings: Settings,
    windowed: Callable[[str, WindowProvider | SampleProvider], WindowProvider],
    undo: contextlib.ExitStack,
) -> WindowProvider | None:
    """Open the provider to compare metrics with (the second source); return None if it cannot be opened.

    The watcher works without a second source.

    Args:
        settings: all settings, with the second source as ``provider``.
        windowed: function that adapts a provider, given with its name, to a WindowProvider.
        undo: stack that closes the provider.
    """
    try:
        provider = open_provider(settings)
    except SettingsError as error:
        _log.info(
            "metrics are not compared with the second source",
            extra={"provider": settings.provider.name, "error": str(error)},
        )
        return None
    undo.callback(close_provider, provider)
    return windowed(settings.provider.name, provider)


def _open_all(views: Sequence[Settings], undo: contextlib.ExitStack) -> list[WindowProvider | SampleProvider]:
    """Open the provider of each of these settings; closing ``undo`` closes the providers."""
    opened = []
    for view in views:
        opened.append(open_provider(view))
        undo.callback(close_provider, opened[-1])
    return opened
