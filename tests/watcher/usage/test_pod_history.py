"""The last day of every pod's use, compared with the same kept in dictionaries."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watcher.pod_use_table import PERIOD_STEPS, PERIODS, STEPS
from watcher.usage.history.pod_history import PodHistory


def observed(history: PodHistory, step: int, **cores: float) -> None:
    """Observe CPU of some pods in a step; memory in GiB is ten times the CPU in cores."""
    cpu = np.array(list(cores.values()), np.float64)
    history.observe(step, list(cores), cpu, cpu * 10)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_day_equals_dictionaries(seed):
    """After rounds with gaps, new, silent and forgotten pods, each step of the last day has the value last observed."""
    dice = np.random.default_rng(seed)
    history, cpu, memory = PodHistory(), {}, {}
    step = int(dice.integers(10**7))
    for _ in range(120):
        step += int(dice.choice([0, 1, 1, 1, 2, 40, 300], p=[0.05, 0.3, 0.3, 0.2, 0.1, 0.04, 0.01]))
        names = [f"pod-{number}" for number in np.flatnonzero(dice.random(6) < 0.7)]
        cores = dice.uniform(0, 4, len(names))
        cores[dice.random(len(names)) < 0.1] = np.nan
        history.observe(step, names, cores, cores * 10)
        for name, use in zip(names, cores.tolist(), strict=True):
            cpu.setdefault(name, {})
            memory.setdefault(name, {})
            if not np.isnan(use):
                cpu[name][step] = use
                period = step // PERIOD_STEPS
                memory[name][period] = max(memory[name].get(period, 0.0), use * 10)
        if dice.random() < 0.05:
            kept = [name for name in cpu if dice.random() < 0.7]
            history.keep_only(kept)
            cpu, memory = ({name: part[name] for name in kept} for part in (cpu, memory))
    names = [*cpu, "unknown"]
    steps = PERIOD_STEPS * int(dice.integers(1, PERIODS + 1))
    known_cpu, known_memory = history.past(names, steps)
    wanted = [range(step - steps + 1, step + 1), range(step // 3 - steps // 3 + 1, step // 3 + 1)]
    for known, values, past in ((known_cpu, cpu, wanted[0]), (known_memory, memory, wanted[1])):
        expected = [[values.get(name, {}).get(number, np.nan) for number in past] for name in names]
        np.testing.assert_allclose(known, expected, rtol=1e-3)
    assert len(history) == len(cpu)


def test_an_earlier_step_is_ignored():
    """A round that comes late, or after the clock was set back, changes nothing."""
    history = PodHistory()
    observed(history, 100, one=1.0)
    observed(history, 99, one=9.0)
    assert history.past(["one"], 3)[0][0].tolist()[2] == 1.0
    assert np.isnan(history.past(["one"], 3)[0][0, :2]).all()


def test_extreme_use_stays_finite():
    """Use beyond the range of float16 is stored as the largest number."""
    history = PodHistory()
    history.observe(0, ["big"], np.array([1e9]), np.array([1e30]))
    cpu, memory = history.past(["big"], 3)
    assert (cpu[0, 2], memory[0, 0]) == (65504, 65504)


def test_a_pod_takes_768_bytes():
    """A hundred thousand pods take 77 MB, at most half more while the buffers grow."""
    history = PodHistory()
    pods, use = list(range(100_000)), np.ones(100_000)
    history.observe(0, pods, use, use)
    assert history.size == pytest.approx(768 * 100_000, rel=0.5)
    assert history.size // len(history) >= STEPS * 2 + PERIODS * 2
