"""State of the learner of workloads in the store: named parts of bytes, which are written in one transaction.

A past day is a part that never changes, so each round writes little more than the present part.
"""

from collections.abc import Mapping

from sqlite_utils import Database


def replace(db: Database, source: str, origin: str, parts: Mapping[str, bytes | None]) -> None:
    """Write the parts of the learner's state, and delete all other parts of the same source and origin.

    Args:
        db: the database, in a transaction.
        source: name of the source of the measurements.
        origin: text that identifies the system that the source reads.
        parts: parts by name; None keeps a stored part.
    """
    stale = names(db, source, origin) - set(parts)
    db.conn.executemany(
        "delete from workload_state where source = ? and origin = ? and part = ?",
        [(source, origin, part) for part in stale],
    )
    db.conn.executemany(
        "insert or replace into workload_state (source, origin, part, body) values (?, ?, ?, ?)",
        [(source, origin, part, body) for part, body in parts.items() if body is not None],
    )


def names(db: Database, source: str, origin: str) -> set[str]:
    """Return the names of the stored parts of a source and origin."""
    query = "select part from workload_state where source = ? and origin = ?"
    return {part for (part,) in db.execute(query, [source, origin])}


def load(db: Database, source: str, origin: str) -> dict[str, bytes]:
    """Return the stored parts of a source and origin by name."""
    query = "select part, body from workload_state where source = ? and origin = ?"
    return {part: body for part, body in db.execute(query, [source, origin]) if isinstance(body, bytes)}
