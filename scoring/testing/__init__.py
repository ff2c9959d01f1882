"""Test suite for score plugins.

:class:`PluginContract` is a pytest suite; pytest must be installed. docs/extending.md has an example.
"""

import pytest

pytest.register_assert_rewrite("scoring.testing.contract")

from scoring.testing.contract import PluginContract  # noqa: E402

__all__ = ["PluginContract"]
