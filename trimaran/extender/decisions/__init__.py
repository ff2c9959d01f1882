"""Record of the extender's decisions: explanations, and comparison with the nodes that the pods went to."""

EXPLAIN, DECISIONS, REGRET = "/explain", "/decisions", "/regret"
#: Routes with information about pods; the pod read authorizer decides who may read them.
POD_ROUTES = (EXPLAIN, DECISIONS)
