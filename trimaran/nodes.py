"""The package ``nodes``, checked to be ours, for environments that have another one of that name."""

from trimaran.parts import own

own("nodes")

from nodes import *  # noqa: E402, F403  only now is it known to be the right one
