"""Alias of ``client``, checked to be trimaran's, for environments with another package of that name."""

from trimaran.parts import import_own

import_own("client")

from client import *  # noqa: E402, F403  after the check
