"""Record of the extender's decisions: explained scores of past pods, and the nodes that the pods were bound to."""

EXPLAIN, DECISIONS, REGRET = "/explain", "/decisions", "/regret"
#: Routes with information about pods; a PodReadAuthorizer decides which callers may read them.
POD_ROUTES = (EXPLAIN, DECISIONS)
