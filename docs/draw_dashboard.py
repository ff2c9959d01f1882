"""Draw the screenshots of the dashboard in ``images/``: python docs/draw_dashboard.py (needs chromium, playwright)."""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))
from support.deciding import cluster, decide, extender  # noqa: E402
from support.page import browser, dashboard, watched_day  # noqa: E402
from support.workload_days import fill_pods, fill_workloads  # noqa: E402

#: Path of each screen, and what is waited for.
SCREENS = {
    "overview": ("", "#overview-watcher tbody tr"),
    "cluster": ("cluster", ".plane .scatterlayer .point"),
    "nodes": ("nodes", "#nodes-table tbody tr"),
    "workloads": ("workloads", "#workloads-table tbody tr"),
    "trust": ("trust", "#trust-map .main-svg"),
    "pod": ("pod", "#pod-pod"),
    "decisions": ("decisions", "#decisions-list tbody tr"),
}
_NODES, _WORKLOADS = 1500, 400
_DARK = ("overview",)
_DECIDED = [f"node-{number}" for number in range(1, 201)]


def main() -> None:
    """Draw every page, with a watcher that has a day of history, and an extender that acts for half of the pods."""
    folder = Path(tempfile.mkdtemp())
    (HERE / "images").mkdir(exist_ok=True)
    until = int(time.time()) // 300 * 300 - 300
    workloads = fill_workloads(folder / "watcher.sqlite", _WORKLOADS, until)
    fill_pods(folder / "watcher.sqlite", workloads, _NODES, until)
    with (
        watched_day(folder, _NODES, "--set", "workloads.enabled=false") as (service, _),
        cluster(folder, _DECIDED) as kubernetes,
        extender(folder, kubernetes, service.url, "extender.canary=50") as decided,
        dashboard(
            folder, service.url, "--extender", decided, "--cluster", KUBECONFIG=str(kubernetes.kube_config())
        ) as url,
        browser() as chromium,
    ):
        decide(decided, kubernetes, _DECIDED, 200)
        for mode, screens in {"light": SCREENS, "dark": {name: SCREENS[name] for name in _DARK}}.items():
            page = chromium.new_page(viewport={"width": 1100, "height": 900}, color_scheme=mode)
            suffix = "" if mode == "light" else f"-{mode}"
            page.set_default_timeout(120_000)
            for name, (path, shown) in screens.items():
                draw(page, f"{url}/{path}", shown, HERE / "images" / f"dashboard-{name}{suffix}.png")


def draw(page: Any, url: str, shown: str, file: Path) -> None:
    """Draw one page, once it shows an element; the cluster's is set to an earlier time of day."""
    page.goto(url)
    page.wait_for_selector(shown)
    page.wait_for_timeout(5000)
    if page.query_selector("#plane-time"):
        page.focus("#plane-time")
        for _ in range(40):
            page.keyboard.press("ArrowLeft")
        page.wait_for_timeout(5000)
    page.screenshot(path=file)


if __name__ == "__main__":
    main()
