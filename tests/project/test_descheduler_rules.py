"""Recording rules for the descheduler: the engine of Prometheus against the formula in numpy."""

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from support.servers import need_server

RULES = Path(__file__).parents[2] / "deploy/prometheus/descheduler-rules.yml"
STEP, STEPS = 15, 60  # seconds between two scrapes, and their number
CYCLE = 2  # scrapes between two evaluations
NODES = ("idle", "busy", "stalled", "control-plane")
WORKERS = np.array([True, True, True, False])
EVICTIONS = np.array([0.0, 3.0, 0.0, 0.0])
GRACE = 1e-6


def rates(seed: int, mean: list[float]) -> np.ndarray:
    """Return a random rate of each node between scrapes, shape (nodes, steps)."""
    noise = np.random.default_rng(seed).uniform(-0.05, 0.05, (len(NODES), STEPS))
    return np.clip(np.array(mean)[:, None] + noise, 0, 1)


def measured(rate: np.ndarray, closed: int) -> np.ndarray:
    """Return ``rate(...[1m])`` of a counter at each evaluation; its increase is extrapolated to the whole minute."""
    intervals = 60 // STEP - 1 + closed
    ends = np.arange(4 * CYCLE, STEPS + 1, CYCLE)
    return np.stack([rate[:, end - intervals : end].mean(axis=1) for end in ends], axis=1)


def series(name: str, labels: str, values: np.ndarray) -> list[dict[str, str]]:
    """Return an input series of each node."""
    return [
        {"series": f'{name}{{instance="{node}"{labels}}}', "values": " ".join(f"{value!r}" for value in row.tolist())}
        for node, row in zip(NODES, values, strict=True)
    ]


def counter(rate: np.ndarray) -> np.ndarray:
    """Return the scrapes of a counter with this rate."""
    return 1000 + np.concatenate([np.zeros((len(NODES), 1)), STEP * rate.cumsum(axis=1)], axis=1)


@pytest.mark.server
def test_the_combined_metric_follows_openshifts_formula(tmp_path: Path) -> None:
    """Every recorded value of a random quarter of an hour equals numpy's, below and above 80 % of mean CPU."""
    promtool, tests = need_server("promtool"), []
    version = subprocess.run([promtool, "--version"], capture_output=True, text=True, check=True).stdout
    closed = int(version.split("version ")[1].startswith("2."))  # from 3 on a range excludes its begin
    for cpu_mean in ([0.2, 0.75, 0.8, 0.9], [0.75, 0.9, 0.95, 0.1]):
        cpu, cpu_wait = rates(1, cpu_mean), rates(2, [0.3, 0.4, 0.6, 0.5])
        memory, memory_wait = rates(3, [0.3, 0.8, 0.9, 0.5]), rates(4, [0.2, 0.1, 0.5, 0.4])
        available = 64 * (1 - np.concatenate([memory[:, :1], memory], axis=1))
        given = [
            *series("node_cpu_seconds_total", ',cpu="0",mode="idle"', counter(1 - cpu)),
            *series("node_pressure_cpu_waiting_seconds_total", "", counter(cpu_wait)),
            *series("node_pressure_memory_waiting_seconds_total", "", counter(memory_wait)),
            *series("node_memory_MemAvailable_bytes", "", available),
            *[
                {"series": f'kube_node_status_allocatable{{node="{node}",resource="memory"}}', "values": f"64x{STEPS}"}
                for node in NODES
            ],
            {"series": 'kube_node_role{node="control-plane",role="control-plane"}', "values": f"1x{STEPS}"},
            {"series": 'descheduler_pods_evicted{node="busy",result="success"}', "values": "0x40 3x19"},
        ]  # fmt: skip
        dimensions = [
            measured(cpu, closed),
            memory[:, 7::CYCLE],
            measured(cpu_wait, closed),
            measured(memory_wait, closed),
        ]
        expected = formula(dimensions, 300 // (STEP * CYCLE) + closed)
        tests.append({"interval": f"{STEP}s", "input_series": given, "promql_expr_test": [
            {"eval_time": f"{STEPS * STEP}s", "expr": f"sum by (instance) (abs({name} - {value!r}) < bool {GRACE})"
             f' and on (instance) {name}{{instance="{node}"}}',
             "exp_samples": [{"labels": f'{{instance="{node}"}}', "value": 1}]}
            for name, values in expected.items() for node, value in zip(NODES, values.tolist(), strict=True)
        ]})  # fmt: skip
    document: dict[str, Any] = {"rule_files": [str(RULES)], "evaluation_interval": f"{STEP * CYCLE}s", "tests": tests}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(document))
    done = subprocess.run(
        [promtool, "test", "rules", tmp_path / "test.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def formula(dimensions: list[np.ndarray], five_minutes: int) -> dict[str, np.ndarray]:
    """Return each recorded value at the end, by rule, shape (nodes,).

    Args:
        dimensions: CPU, memory, waits for CPU and for memory; a column an evaluation.
        five_minutes: number of evaluations in a range of five minutes.
    """
    cpu, memory, cpu_wait, memory_wait = dimensions
    cpu_pressure, memory_pressure = np.where(cpu > 0.7, cpu_wait, 0.0), np.where(memory > 0.7, memory_wait, 0.0)
    mean = cpu[WORKERS, -1].mean()
    kept = (cpu, memory, cpu_pressure, memory_pressure)
    dimensions = [np.quantile(values[:, -five_minutes:], 0.66, axis=1) for values in kept]
    above = [np.maximum(of - of[WORKERS].mean(), 0.0) for of in dimensions]
    distance = np.minimum(1.0, 3 * np.sqrt(sum(of**2 for of in above)))
    return {
        "trimaran_descheduler:cpu:rate1m": cpu[:, -1],
        "trimaran_descheduler:memory": memory[:, -1],
        "trimaran_descheduler:cpu_pressure:rate1m": cpu_pressure[:, -1],
        "trimaran_descheduler:cpu_combined:rate1m": cpu[:, -1] if mean < 0.8 else cpu_pressure[:, -1],
        "trimaran_descheduler:distance": distance,
        "trimaran_descheduler:priority": distance * np.maximum(0.01, 1 - 0.1 * EVICTIONS),
    }
