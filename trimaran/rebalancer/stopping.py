"""``trimaran rebalance stop`` and ``resume``: set or release the brake by hand, and clean up.

The brake is in the ledger. The leader reads the ledger before each move and records the move in it before the eviction,
with the resource version that it read. So a stop needs no Lease and works at once: a move that is not recorded yet
fails with a conflict, before its eviction.
"""

import time
from dataclasses import dataclass

from runtime.errors import TrimaranError
from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, KubernetesApi
from runtime.kubernetes.paths import PODS
from runtime.kubernetes.rbac import needed_rule
from trimaran.cluster.target_note import is_noted
from trimaran.rebalancer.brake import BrakeReason
from trimaran.rebalancer.evictions import Evictor
from trimaran.rebalancer.ledger import Brake, Ledger
from trimaran.rebalancer.ledger_store import LedgerConflict, LedgerStore, UnreadableLedger
from trimaran.rebalancer.moves import MoveState
from trimaran.rebalancer.settings import RebalanceSettings

_TRIES = 5
_LIST_SECONDS = 120.0
_WRITE_SECONDS = 10.0
_STOP_TEXT = "stopped by a person"


@dataclass(frozen=True, slots=True)
class StopResult:
    """Result of a stop.

    Attributes:
        open: number of moves whose replacement is awaited.
        notes: number of pods from which the annotation of the planned target was removed.
    """

    open: int
    notes: int


def stop(settings: RebalanceSettings, *, clean: bool) -> StopResult:
    """Set the brake; with ``clean`` also remove the annotations of planned targets from pods.

    Raises:
        SettingsError: the settings give no access to the Kubernetes API.
        TrimaranError: the ledger or a pod cannot be read or written.
    """
    api = settings.cluster.open_api()
    try:
        ledger = _write(_store(api, settings), Brake(BrakeReason.STOPPED, _STOP_TEXT, time.time()))
        planned = [record for record in ledger.records if record.state is MoveState.PLANNED]
        if clean and planned:
            newest = max(record.planned_at for record in planned)
            wait = newest + _WRITE_SECONDS - time.time()  # for writes that are under way
            time.sleep(min(max(0.0, wait), _WRITE_SECONDS))
        return StopResult(len(ledger.open_records()), _remove_notes(api) if clean else 0)
    finally:
        api.close()


def resume(settings: RebalanceSettings) -> tuple[bool, str]:
    """Release the brake; return whether the brake was set, and the name of the ledger's ConfigMap.

    Raises:
        SettingsError: the settings give no access to the Kubernetes API.
        TrimaranError: the ledger cannot be read or written.
    """
    api = settings.cluster.open_api()
    try:
        store = _store(api, settings)
        before = _read(store)
        if before.brake is not None:
            _write(store, None)
        return before.brake is not None, store.where
    finally:
        api.close()


def _store(api: KubernetesApi, settings: RebalanceSettings) -> LedgerStore:
    return LedgerStore(api, settings.cluster.lease_namespace, settings.rebalance.lease_name)


def _read(store: LedgerStore) -> Ledger:
    try:
        return store.read()
    except UnreadableLedger as error:
        raise TrimaranError(str(error)) from error
    except REQUEST_FAILURES as error:
        raise TrimaranError(f"the {store.where} cannot be read: {describe(error).reason}") from error


def _write(store: LedgerStore, brake: Brake | None) -> Ledger:
    """Write the ledger with another brake, or with None to release the brake; return that ledger."""
    for _ in range(_TRIES):
        ledger = _read(store).with_brake(brake)
        try:
            store.write(ledger)
        except LedgerConflict:
            continue  # the leader has written: read again
        except REQUEST_FAILURES as error:
            why = f"{describe(error).reason}; cluster.lease_namespace names its namespace"
            raise TrimaranError(f"the {store.where} cannot be written: {why}") from error
        return ledger
    raise TrimaranError(f"the {store.where} was changed by others during each attempt; run the command again")


def _remove_notes(api: KubernetesApi) -> int:
    """Remove the annotations of planned targets from all pods; return the number of these pods."""
    evictor, removed = Evictor(api, _WRITE_SECONDS), 0
    try:
        for pod in api.list_items(PODS, Deadline.after(_LIST_SECONDS)):
            metadata = pod["metadata"]
            if not is_noted(metadata.get("annotations") or {}) or metadata.get("deletionTimestamp"):
                continue
            if why := evictor.note(metadata["namespace"], metadata["name"], metadata["uid"], None):
                raise TrimaranError(f"cannot remove annotations of {metadata['namespace']}/{metadata['name']}: {why}")
            removed += 1
    except REQUEST_FAILURES as error:
        rule = needed_rule(PODS, "list", "patch")
        raise TrimaranError(f"the pods cannot be listed or patched: {describe(error).reason}; {rule}") from error
    return removed
