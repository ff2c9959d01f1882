"""Batch placement: many pods at once, by scheduler rules and local search, with a lower bound.

``problem`` defines a placement problem and the cost of a plan; ``methods`` lists the methods by name. docs/placement.md
is the user's page.

"The TBESK paper" is the paper that proposes TBESK, a variant of the bald eagle search (BES; Alsattar and others, "Novel
meta-heuristic bald eagle search optimisation algorithm", 2020) for placing pods in batches. research/tbesk compares the
methods with the figures of the TBESK paper.
"""
