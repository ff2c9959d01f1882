"""Batch placement: many pods at once, by scheduler rules, metaheuristics and local search, with a lower bound.

``problem`` defines a placement problem and the cost of a plan; ``methods`` lists the methods by name. docs/placement.md
is the user's page; research/tbesk compares the methods with the paper that the metaheuristics come from.
"""
