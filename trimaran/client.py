"""Alias of ``client``, checked to be trimaran's, for environments with another package of that name."""

import sys
from typing import TYPE_CHECKING

from trimaran.parts import import_own

if TYPE_CHECKING:
    from client import *  # noqa: F403

sys.modules[__name__] = import_own("client")
