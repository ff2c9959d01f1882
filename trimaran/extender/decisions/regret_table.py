"""Regret table of an extender as rows of texts, for the commands and the dashboard."""

from collections.abc import Mapping
from typing import Any


def regret_rows(document: Mapping[str, Any]) -> list[list[str]]:
    """Return the regret table, which compares chosen nodes with our best nodes, as rows of texts.

    Columns: scheduler, mode, number of pods, number of pods on our best node, mean load of the chosen nodes, mean load
    of the best nodes, mean regret (load of the chosen node minus load of the best node, points), its 95th percentile,
    number of hot chosen nodes, number of hot best nodes.

    Args:
        document: response of ``GET /regret``.
    """
    return [
        [
            row["scheduler"], row["mode"], str(row["pods"]), str(row["same_node"]), f"{row['chosen_percent']:.1f}%",
            f"{row['best_percent']:.1f}%", f"{row['regret']:+.2f}", f"{row['regret_p95']:+.2f}",
            str(row["chosen_hot"]), str(row["best_hot"]),
        ]
        for row in document["schedulers"]
    ]  # fmt: skip
