"""Draw the screenshots of the dashboard in ``images/``: python docs/draw_dashboard.py (needs chromium, pillow)."""

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))
from support.controlling import Controlled  # noqa: E402
from support.days import fill, made_up_day  # noqa: E402
from support.deciding import cluster, decide, extender  # noqa: E402
from support.fake_kubernetes import rfc3339  # noqa: E402
from support.page import browser, dashboard  # noqa: E402
from support.rebalancing import hot_and_cold  # noqa: E402
from support.servers import Service  # noqa: E402
from support.shown_services import prometheus_app, scheduler_app, served_app  # noqa: E402
from support.workload_days import fill_pods, fill_workloads  # noqa: E402

from runtime.parsing import parse_yaml  # noqa: E402
from runtime.server.access import AccessCheck  # noqa: E402
from trimaran.rebalancer.app import create_app  # noqa: E402
from trimaran.rebalancer.status import status_document  # noqa: E402
from trimaran.scheduler.service.telemetry import AttemptResult  # noqa: E402

#: Path of each screen, and what is waited for.
SCREENS = {
    "overview": ("", "#overview-watcher tbody tr"),
    "cluster": ("cluster", ".plane .scatterlayer .point"),
    "nodes": ("nodes", "#nodes-table tbody tr"),
    "node": ("nodes?node=node-212", "#node-acts p, #node-acts table"),
    "workloads": ("workloads", "#workloads-table tbody tr"),
    "pod": ("pod?pod=default/web-7", "#pod-ranking tbody tr"),
    "decisions": ("decisions", "#decisions-list tbody tr"),
}
_NODES, _WORKLOADS, _MINUTES = 1500, 400, 1440
_COLORS = 128
_DARK = ("overview",)
_DECIDED = [f"node-{number}" for number in range(1, 301)]
#: Number, CPU load in percent and minutes at this load of each hot node; a soft taint follows after ten minutes.
_HOT = ((212, 97, 190), (41, 93, 75), (118, 88, 34), (7, 85, 22), (260, 83, 6))
_ALERT = "TrimaranNodesManyHot"


def main() -> None:
    """Draw every page, with a day of history, an extender that acts for half of the pods, and all other services."""
    folder = Path(tempfile.mkdtemp())
    (HERE / "images").mkdir(exist_ok=True)
    with world(folder) as url, browser() as chromium:
        for mode, screens in {"light": SCREENS, "dark": {name: SCREENS[name] for name in _DARK}}.items():
            page = chromium.new_page(viewport={"width": 1180, "height": 900}, color_scheme=mode)
            suffix = "" if mode == "light" else f"-{mode}"
            page.set_default_timeout(120_000)
            for name, (path, shown) in screens.items():
                draw(page, f"{url}/{path}", shown, HERE / "images" / f"dashboard-{name}{suffix}.png")


@contextmanager
def world(folder: Path) -> Iterator[str]:
    """Run a watcher and everything that the dashboard shows; yield the dashboard's address."""
    file, until = folder / "watcher.sqlite", int(time.time()) // 300 * 300 - 300
    workloads = fill_workloads(file, _WORKLOADS, until)
    fill_pods(file, workloads, _NODES, until)
    day = made_up_day(_NODES, _MINUTES)
    day[0] *= 0.75  # a cluster with few hot nodes
    for number, load, minutes in _HOT:
        day[0, number - 1, -minutes:] = load + np.sin(np.arange(minutes) / 9)
        day[1, number - 1, -minutes:] = 3
    day[2] = np.minimum(day[2], 78)
    fill(file, day, int(time.time()) // 60 * 60 - 60)
    now = folder / "now.json"
    now.write_text(json.dumps({f"node-{row + 1}": present(day[:, row, -1].tolist()) for row in range(_NODES)}))
    options = ("--provider", "Fake", "--set", f"fake.file={now}", "--set", "workloads.enabled=false")
    service = Service(file, folder / "watcher.log", *options)
    with ExitStack() as stack:
        stack.callback(service.terminate)
        service.wait_for("/readyz")
        kubernetes = stack.enter_context(cluster(folder, _DECIDED))
        for number, _, minutes in _HOT[:4]:
            at = rfc3339(time.time() - 60 * (minutes - 10))
            taint = {"key": "trimaran.io/hot", "value": "true", "effect": "PreferNoSchedule", "timeAdded": at}
            kubernetes.nodes[f"node-{number}"]["spec"]["taints"] = [taint]
        decided = stack.enter_context(extender(folder, kubernetes, service.url, "extender.canary=50"))
        decide(decided, kubernetes, _DECIDED, 200)
        options = ("--extender", decided, "--cluster")
        for name, app in (
            ("rebalancer", rebalancer_app()),
            ("scheduler", scheduler_app({AttemptResult.SCHEDULED: 412, AttemptResult.UNSCHEDULABLE: 9})),
            ("alerts", prometheus_app([alert()])),
        ):
            options += (f"--{name}", stack.enter_context(served_app(app)))
        yield stack.enter_context(dashboard(folder, service.url, *options, KUBECONFIG=str(kubernetes.kube_config())))


def present(loads: list[float]) -> dict[str, Any]:
    """Return a node of the Fake provider's file: average and deviation of CPU and memory, percent."""
    cpu, cpu_deviation, memory, memory_deviation = loads
    return {
        "cpu": {"average": cpu, "deviation": min(cpu_deviation, 5.0)},
        "memory": {"average": memory, "deviation": min(memory_deviation, 2.0)},
    }


def rebalancer_app() -> Any:
    """Return the application of a rebalancer that only plans."""
    controlled = Controlled(hot_and_cold(), "observe")
    controlled.run()
    rebalancer = controlled.rebalancer
    return create_app(
        rebalancer, lambda: status_document(rebalancer, "observe", leads=True), lambda: True, str, lambda: True,
        AccessCheck(),
    )  # fmt: skip


def alert() -> dict[str, Any]:
    """Return an alert of Prometheus' API, with the texts of its rule."""
    rules = parse_yaml((HERE.parent / "deploy/prometheus/alerts.yml").read_bytes())["groups"]
    (rule,) = (rule for group in rules for rule in group["rules"] if rule["alert"] == _ALERT)
    texts = {
        name: text.replace("{{ $labels.instance }}", "trimaran-nodes") for name, text in rule["annotations"].items()
    }
    return {
        "labels": {"alertname": _ALERT, **rule["labels"]}, "annotations": texts, "state": "firing",
        "activeAt": rfc3339(time.time() - 1500),
    }  # fmt: skip


def draw(page: Any, url: str, shown: str, file: Path) -> None:
    """Draw one page, once it shows an element; the cluster's is set to an earlier time, and the pod is scored."""
    page.goto(url)
    if "/pod?" in url:
        page.wait_for_function("() => (document.querySelector('#pod-pod') || {}).value?.includes('web-7')")
        page.click("#pod-score")
    page.wait_for_selector(shown)
    page.wait_for_timeout(5000)
    if page.query_selector("#plane-time"):
        page.focus("#plane-time")
        for _ in range(40):
            page.keyboard.press("ArrowLeft")
        page.wait_for_timeout(5000)
    picture = Image.open(BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(_COLORS, dither=Image.Dither.NONE).save(file, optimize=True)  # a third of the size


if __name__ == "__main__":
    main()
