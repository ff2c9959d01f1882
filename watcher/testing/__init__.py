"""For people who write providers: the suite that every provider has to pass, and what it takes to run it.

:class:`ProviderContract` and its two companions are suites for pytest, which has to be installed. Give one a
:class:`Harness`, which stands for your provider and the source behind it; docs/extending.md has a whole example.
"""

import pytest

pytest.register_assert_rewrite("watcher.testing.contract")

from watcher.testing.contract import DuplicatedSeriesContract, HttpContract, ProviderContract  # noqa: E402
from watcher.testing.harness import (  # noqa: E402
    DuplicatingHarness,
    Harness,
    SampledSource,
    Series,
    RunningSource,
    WindowSource,
)
from watcher.testing.servers import FakeServer, reply, serving, trickling  # noqa: E402

__all__ = [
    "DuplicatedSeriesContract",
    "DuplicatingHarness",
    "FakeServer",
    "Harness",
    "HttpContract",
    "ProviderContract",
    "SampledSource",
    "Series",
    "RunningSource",
    "WindowSource",
    "reply",
    "serving",
    "trickling",
]
