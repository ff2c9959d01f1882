"""Tests of reading the selectors of series in PromQL."""

import pytest

from watcher.providers.prometheus.selectors import source_of


@pytest.mark.parametrize(
    ("promql", "source"),
    [
        ('1 - avg by (instance) (rate(cpu{mode="idle",$matchers}[5m]))', 'cpu{mode="idle",$matchers}'),
        ("max by ($labels) (own_cpu)", "own_cpu"),
        ("sum(rate(own_total[5m])) without (cpu) / 4", "own_total"),
        ('label_replace(own{a="}"}, "node", "$1", "host", "(.*){3}")', 'own{a="}"}'),
        ("kube_node_info * on (node) group_left () own_cpu offset 5m", "own_cpu"),
        ("kube_node_status_capacity{resource='cpu'}", "kube_node_status_capacity{resource='cpu'}"),
        ('{__name__=~"a|b"} > bool 1e3', '{__name__=~"a|b"}'),
        ("vector(1)", ""),
        ("scalar(1) + 2e5", ""),
    ],
)
def test_the_series_of_an_expression(promql: str, source: str) -> None:
    """One selector of the expression is found: no function, keyword, label, text or number, and no series of a join."""
    assert source_of(promql) == source
