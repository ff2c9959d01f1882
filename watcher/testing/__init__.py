"""Test suite for metrics providers, and helpers to run it.

:class:`ProviderContract` and its companions are pytest suites; pytest must be installed. Give a suite a
:class:`Harness`, which represents your provider and the source behind it; docs/extending.md has a complete example.
"""

import pytest

pytest.register_assert_rewrite("watcher.testing.contract", "watcher.testing.pod_use")

from watcher.testing.contract import (  # noqa: E402
    BrokenNodeContract,
    DuplicatedSeriesContract,
    HttpContract,
    PastContract,
    ProviderContract,
)
from watcher.testing.harness import (  # noqa: E402
    BreakingHarness,
    DuplicatingHarness,
    Harness,
    RunningSource,
    SampledSource,
    Series,
    WindowSource,
)
from watcher.testing.pod_use import (  # noqa: E402
    ContainerId,
    MeasuredContainer,
    PodUseContract,
    PodUseHarness,
    PodUseHttpContract,
    PodUseSource,
    ProviderSource,
)
from watcher.testing.servers import FakeServer, reply, serving, trickling  # noqa: E402

__all__ = [
    "BreakingHarness",
    "BrokenNodeContract",
    "ContainerId",
    "DuplicatedSeriesContract",
    "DuplicatingHarness",
    "FakeServer",
    "Harness",
    "HttpContract",
    "MeasuredContainer",
    "PastContract",
    "PodUseContract",
    "PodUseHarness",
    "PodUseHttpContract",
    "PodUseSource",
    "ProviderContract",
    "ProviderSource",
    "RunningSource",
    "SampledSource",
    "Series",
    "WindowSource",
    "reply",
    "serving",
    "trickling",
]
