"""Workloads without a running watcher: one measurement of all pods, and the past that the provider knows."""

import logging
import math
import time
from itertools import islice
from typing import TYPE_CHECKING, Any

from runtime.errors import SettingsError
from runtime.terminal import echo
from trimaran.cli.options import fail
from watcher.commands import load_or_exit
from watcher.pipeline.factory import open_watcher
from watcher.settings import Settings, WatcherSettings
from watcher.usage.recommend.recommendation import RULES, recommend
from watcher.usage.sources.pods import DAYS
from watcher.wire.workloads import WorkloadIndex, workload_items

if TYPE_CHECKING:
    from watcher.pipeline.watcher import Watcher

_DAY = 86400.0
_MEASURE_SECONDS = 90.0
_FILL_SECONDS = 600.0
_POLL_SECONDS = 0.2
_MAX_UNMEASURED = 1000


def embedded_document(flags: dict[str, str | None], last: float, namespace: str | None) -> dict[str, Any]:
    """Return the document of ``GET /workloads`` of a watcher that runs for this call only.

    Exits with status 2 if the settings are invalid, with 1 if no pod can be measured.

    Args:
        flags: settings of the provider by name; None for the value in the environment.
        last: seconds of the past to read; 0 for the present only.
        namespace: namespace of the workloads; None for all.
    """
    days = min(math.ceil(last / _DAY), DAYS)
    assignments = (f"workloads.backfill_days={days}", "store.backfill_hours=0")
    settings: Settings = load_or_exit(WatcherSettings, None, assignments, flags).settings
    logging.getLogger("watcher").addHandler(logging.NullHandler())
    echo(f"trimaran: no --watcher: measuring all pods once by {settings.provider.name}", err=True)
    try:
        watcher = open_watcher(settings, None, recommends=True)
    except SettingsError as error:
        fail("; ".join(error.problems), 2)
    try:
        watcher.usage.start()
        _await_use(watcher, days)
        return _document(watcher, namespace)
    finally:
        watcher.stop()


def _await_use(watcher: "Watcher", days: int) -> None:
    """Wait until all pods are measured once and the past days are read; exit with status 1 if no pod is measured."""
    learned = watcher.workloads
    deadline = time.monotonic() + _MEASURE_SECONDS
    while not learned.table().timestamp:
        if time.monotonic() > deadline or watcher.usage.state.failure:
            fail(f"no pod is measured: {watcher.usage.why_empty}", 1)
        time.sleep(_POLL_SECONDS)
    deadline, left = time.monotonic() + _FILL_SECONDS, days
    while unfilled := len(learned.unfilled()[0]):
        if unfilled != left:
            echo(f"trimaran: {days - unfilled} of {days} days are read", err=True)
            left = unfilled
        if time.monotonic() > deadline:
            echo(f"trimaran: {unfilled} of {days} days could not be read in {_FILL_SECONDS:.0f} s", err=True)
            return
        time.sleep(_POLL_SECONDS)


def _document(watcher: "Watcher", namespace: str | None) -> dict[str, Any]:
    learned = watcher.workloads
    table, containers = learned.table(), learned.containers()
    index = WorkloadIndex.of(table, containers, recommend(containers, RULES[learned.rule], learned.autoscaling))
    wanted = [each for each in index.workloads if namespace in {None, each.namespace}]
    unmeasured = (each for each in learned.unmeasured if namespace in {None, each.workload.namespace})
    return {
        "timestamp": table.timestamp,
        "not_checked": learned.unchecked,
        "workloads": workload_items(index, wanted),
        "not_measured": [each.as_document() for each in islice(unmeasured, _MAX_UNMEASURED)],
    }
