"""Batch placement: many pods at once, by the rules of schedulers, by metaheuristics, and by local search with a bound.

``problem`` says what is to be placed and what a plan is worth; ``methods`` has every way by its name. The paper that
much of this follows, and what came of it, is told in docs/placement.md.
"""
