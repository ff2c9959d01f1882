"""Labels of an object in Prometheus' series, apart from those of the scrape target.

A scrape without ``honor_labels`` keeps the target's labels. If both have a label ``pod``, the object's becomes
``exported_pod``: https://prometheus.io/docs/prometheus/latest/configuration/configuration/#scrape_config
"""

from collections.abc import Iterable, Mapping

EXPORTED = "exported_"


def both_forms(names: Iterable[str]) -> str:
    """Return label names for the ``by`` of an aggregation: the exported form of each name, then the names."""
    names = tuple(names)
    return ", ".join((*(EXPORTED + name for name in names), *names))


def own_label(labels: Mapping[str, str], name: str) -> str:
    """Return the object's own value of a label; empty if the series does not have it."""
    return labels.get(EXPORTED + name) or labels.get(name, "")
