"""Contract of score plugins and of filters for CoolMemory."""

from trimaran_cool_memory import CoolMemory

from scoring.testing import FilterContract, PluginContract


class TestCoolMemory(PluginContract, FilterContract):
    """Tests of the contract."""

    plugin = CoolMemory(target_percent=70, spare_percent=80)
