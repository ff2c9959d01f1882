"""Holdout: a fixed share of the pods whose planned moves are not made, as a control group for the other moves."""

import hashlib

_BUCKETS = 10_000


def is_held(lineage: str, percent: float) -> bool:
    """Return whether the moves of a lineage are planned but not made; always the same for the same lineage."""
    digest = hashlib.blake2b(lineage.encode(), digest_size=8).digest()
    return int.from_bytes(digest) % _BUCKETS < percent / 100 * _BUCKETS
