"""The package ``simulator``, checked to be ours, for environments that have another one of that name."""

from trimaran.parts import own

own("simulator")

from simulator import *  # noqa: E402, F403  only now is it known to be the right one
