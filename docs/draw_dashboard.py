"""Draws the dashboard's pictures in ``images/``: python docs/draw_dashboard.py (needs chromium and playwright)."""

import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))
from support.page import browser, dashboard, watched_day  # noqa: E402

SCREENS = {"cluster": "", "nodes": "nodes", "trust": "trust", "pod": "pod"}
_NODES = 1500


def main() -> None:
    """Draw every screen, over a watcher that has seen a day."""
    folder = Path(tempfile.mkdtemp())
    (HERE / "images").mkdir(exist_ok=True)
    with watched_day(folder, _NODES) as (service, _), dashboard(folder, service.url) as url, browser() as chromium:
        page = chromium.new_page(viewport={"width": 1100, "height": 900})
        for name, path in SCREENS.items():
            page.goto(f"{url}/{path}")
            page.wait_for_timeout(5000)
            if name == "cluster":
                page.focus("#plane-time")
                for _ in range(40):
                    page.keyboard.press("ArrowLeft")
                page.wait_for_timeout(5000)
            page.screenshot(path=HERE / "images" / f"dashboard-{name}.png")


if __name__ == "__main__":
    main()
