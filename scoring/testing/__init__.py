"""Test suites for plugins.

:class:`PluginContract` is a pytest suite for score plugins, and :class:`FilterContract` for plugins that filter; pytest
must be installed. docs/extending.md has an example.
"""

import pytest

pytest.register_assert_rewrite("scoring.testing.contract", "scoring.testing.filter_contract")

from scoring.testing.contract import PluginContract  # noqa: E402
from scoring.testing.filter_contract import FilterContract  # noqa: E402

__all__ = ["FilterContract", "PluginContract"]
