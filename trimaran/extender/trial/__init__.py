"""Field trial of the extender: acting and shadow alternate by blocks of time, and their outcomes are compared."""

TRIAL = "/trial"
