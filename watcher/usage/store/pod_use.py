"""Past use of pods in the store: the names of pods, one row each, and blocks of an hour with the use of all pods."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlite_utils import Database

_NAMES = ("uid", "name", "node", "revision", "workload_namespace", "workload_kind", "workload_name")
_COLUMNS = ", ".join(("source", "origin", "number", *_NAMES))

PodRow = tuple[int, str, str, str, str, str, str, str]
"""Number of a pod; its uid, namespace and name, node, revision; namespace, kind and name of its workload."""


class PodUseChanges(NamedTuple):
    """Changes of the past use of pods by one round.

    Attributes:
        pods: pods that are new.
        gone: numbers of pods to delete.
        blocks: blocks to write, by hour, in hours of Unix time.
        oldest_hour: hour before which blocks are deleted.
        begins: True to delete everything that was stored before.
    """

    pods: Sequence[PodRow]
    gone: Sequence[int]
    blocks: Mapping[int, bytes]
    oldest_hour: int
    begins: bool


class StoredPodUse(NamedTuple):
    """Stored pods, and their use in blocks by hour."""

    pods: Sequence[PodRow]
    blocks: Mapping[int, bytes]


def write(db: Database, source: str, origin: str, changes: PodUseChanges) -> None:
    """Write the changes of the past use of pods by one round.

    Args:
        db: the database, in a transaction.
        source: name of the source of the measurements.
        origin: text that identifies the system that the source reads.
        changes: the changes.
    """
    key, connection = (source, origin), db.conn
    if changes.begins:
        for table in ("pod_use_pods", "pod_use_blocks"):
            connection.execute(f"delete from {table} where source = ? and origin = ?", key)  # noqa: S608
    connection.executemany(
        "delete from pod_use_pods where source = ? and origin = ? and number = ?",
        [(*key, number) for number in changes.gone],
    )
    values = ", ".join(["?"] * (3 + len(_NAMES)))
    connection.executemany(
        f"insert or replace into pod_use_pods ({_COLUMNS}) values ({values})",  # noqa: S608
        [(*key, *row) for row in changes.pods],
    )
    connection.executemany(
        "insert or replace into pod_use_blocks (source, origin, hour, body) values (?, ?, ?, ?)",
        [(*key, hour, body) for hour, body in changes.blocks.items()],
    )
    # Blocks of other sources and origins expire, too; their pods are deleted after the last block.
    connection.execute("delete from pod_use_blocks where hour < ?", (changes.oldest_hour,))
    connection.execute(
        "delete from pod_use_pods where (source, origin) not in (select source, origin from pod_use_blocks)"
    )


def load(db: Database, source: str, origin: str) -> StoredPodUse:
    """Return the stored pods and blocks of a source and origin."""
    where, key = "where source = ? and origin = ?", (source, origin)
    pods = db.execute(f"select number, {', '.join(_NAMES)} from pod_use_pods {where}", key)  # noqa: S608
    rows: list[PodRow] = [(int(number), *map(str, names)) for number, *names in pods]  # type: ignore[misc]
    blocks = db.execute(f"select hour, body from pod_use_blocks {where}", key)  # noqa: S608
    return StoredPodUse(rows, {int(hour): body for hour, body in blocks if isinstance(body, bytes)})
