"""Workloads without a running watcher: one round of all pods, and the past days that the provider knows."""

import logging
import math
from contextlib import ExitStack
from typing import Any

from runtime.errors import SettingsError
from runtime.kubernetes.workloads import Workload
from runtime.terminal import echo
from trimaran.cli.options import fail
from watcher.commands import load_or_exit
from watcher.errors import ProviderError
from watcher.settings import Settings, WatcherSettings
from watcher.store import Store
from watcher.usage.backfill import WorkloadBackfill
from watcher.usage.learn.learner_service import LearnerService
from watcher.usage.learn.unmeasured import unmeasured_items
from watcher.usage.recommend.recommendation import recommended
from watcher.usage.rounds import PodUseRounds
from watcher.usage.sources.pods import DAYS
from watcher.wire.workloads import WorkloadIndex, workload_items

_DAY = 86400.0


def embedded_document(flags: dict[str, str | None], last: float, namespace: str | None) -> dict[str, Any]:
    """Return the document of ``GET /workloads`` that a watcher would serve after its first round and its backfill.

    Exits with status 2 if the settings are invalid, with 1 if no pod can be measured or the past cannot be read.

    Args:
        flags: settings of the provider by name; None for the value in the environment.
        last: seconds of the past to read, in whole days; 0 for the present only.
        namespace: namespace of the workloads; None for all.
    """
    settings: Settings = load_or_exit(WatcherSettings, None, (), flags).settings
    logging.getLogger("watcher").addHandler(logging.NullHandler())  # what fails is shown below
    days = min(math.ceil(last / _DAY), DAYS)
    learned = LearnerService(Store(None), settings.provider.name, rule=settings.workloads.rule, backfill_days=days)
    with ExitStack() as stack:
        backfill = WorkloadBackfill(settings, learned, in_background=False)
        stack.callback(backfill.stop)
        rounds = PodUseRounds(settings, [learned, backfill], learner=learned)
        stack.callback(rounds.stop)
        echo(f"trimaran: no --watcher: measuring all pods once by {settings.provider.name}", err=True)
        try:
            if not rounds.run_once() or not learned.table().timestamp:
                fail(f"no pod is measured: {rounds.why_empty}", 1)
            backfill.fill_all(lambda filled, of: echo(f"trimaran: {filled} of {of} days are read", err=True))
        except SettingsError as error:
            fail("; ".join(error.problems), 2)
        except ProviderError as error:
            fail(f"the past cannot be read (without --last the present is shown): {error}", 1)
    return _document(learned, namespace)


def _document(learned: LearnerService, namespace: str | None) -> dict[str, Any]:
    index = WorkloadIndex.of(learned.table(), *recommended(learned))

    def is_wanted(workload: Workload) -> bool:
        return namespace in {None, workload.namespace}

    return {
        "timestamp": index.table.timestamp,
        "not_checked": learned.unchecked,
        "workloads": workload_items(index, list(filter(is_wanted, index.workloads))),
        "not_measured": unmeasured_items(learned.unmeasured, is_wanted),
    }
