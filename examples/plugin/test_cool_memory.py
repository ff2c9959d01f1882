"""Contract of score plugins for CoolMemory."""

from trimaran_cool_memory import CoolMemory

from scoring.testing import PluginContract


class TestCoolMemory(PluginContract):
    """Tests of the contract."""

    plugin = CoolMemory(target_percent=70)
