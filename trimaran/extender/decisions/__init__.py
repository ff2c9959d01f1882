"""What was decided for pods: recorded behind the answers, explained, and held against what came of it."""

EXPLAIN, DECISIONS, REGRET = "/explain", "/decisions", "/regret"
#: Tell of pods, to those that ``Readers`` let know of them.
OF_PODS = (EXPLAIN, DECISIONS)
