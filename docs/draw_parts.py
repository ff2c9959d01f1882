"""Draw ``images/parts-light.svg`` and ``images/parts-dark.svg``: the parts of trimaran, for README.

python docs/draw_parts.py [directory]      the default directory is images/ next to this file
"""

import sys
from html import escape
from pathlib import Path
from typing import NamedTuple

WIDTH, HEIGHT = 960, 340


class Theme(NamedTuple):
    """Colors of one mode."""

    ink: str
    quiet: str
    ground: str
    box: str
    line: str
    accent: str


class Part(NamedTuple):
    """Box of one part: its place, title and lines of text."""

    left: int
    top: int
    width: int
    height: int
    title: str
    lines: tuple[str, ...]
    accent: bool = True


THEMES = {
    "light": Theme("#1d2127", "#5a616b", "#ffffff", "#f2f4f7", "#8b93a0", "#1d58c0"),
    "dark": Theme("#e8eaee", "#a4acb8", "#14171c", "#20252d", "#6b7480", "#6ea0f5"),
}
PARTS = (
    Part(
        10, 90, 170, 110, "metrics providers",
        ("Prometheus, InfluxDB,", "metrics server, Datadog,", "SignalFx, this machine"), False,
    ),
    Part(225, 90, 160, 110, "watcher", ("15, 10, 5 min windows", "judged, kept in SQLite", "REST on :2020")),
    Part(430, 90, 130, 110, "client", ("over HTTP or", "embedded: one", "setting")),
    Part(605, 90, 150, 110, "scoring", ("Trimaran's plugins,", "kube-scheduler's,", "our own")),
    Part(800, 10, 150, 76, "acts", ("extender, soft taints,", "place")),
    Part(800, 112, 150, 76, "proves", ("simulate, record,", "evidence")),
    Part(800, 214, 150, 76, "shows", ("page, top, score,", "explain, doctor")),
    Part(605, 250, 150, 76, "cluster", ("nodes and pods by", "list and watch"), False),
    Part(225, 250, 160, 76, "your scheduler", ("GET /watcher/<host>,", "import client"), False),
)  # fmt: skip
#: Arrows, as points of a line; the last one has the head.
ARROWS = (
    ((180, 145), (225, 145)), ((385, 145), (430, 145)), ((560, 145), (605, 145)),
    ((755, 130), (778, 130), (778, 43), (800, 43)), ((755, 145), (800, 145)),
    ((755, 160), (778, 160), (778, 247), (800, 247)), ((680, 250), (680, 200)), ((305, 200), (305, 250)),
)  # fmt: skip


def drawing(theme: Theme) -> str:
    """Return the picture as SVG."""
    body = [f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="{theme.ground}"/>']
    for points in ARROWS:
        corners = " ".join(f"{x},{y}" for x, y in points)
        stroke = f'fill="none" stroke="{theme.line}" stroke-width="1.5" marker-end="url(#head)"'
        body.append(f'<polyline points="{corners}" {stroke}/>')
    for part in PARTS:
        edge = theme.accent if part.accent else theme.line
        body.append(
            f'<rect x="{part.left}" y="{part.top}" width="{part.width}" height="{part.height}" rx="6" '
            f'fill="{theme.box}" stroke="{edge}" stroke-width="1.5"/>'
        )
        body.append(text(part, 24, part.title, f'font-weight="600" font-size="15" fill="{theme.ink}"'))
        body += [
            text(part, 44 + 18 * number, line, f'font-size="12.5" fill="{theme.quiet}"')
            for number, line in enumerate(part.lines)
        ]
    head = (
        '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path d="M0,0 L8,4 L0,8 z" fill="{theme.line}"/></marker>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'role="img" font-family="system-ui, sans-serif" text-anchor="middle">'
        "<title>Providers feed the watcher. The client, the scores and all tools read from it.</title>"
        f"<defs>{head}</defs>{''.join(body)}</svg>\n"
    )


def text(part: Part, below: int, words: str, style: str) -> str:
    """Return a centered line of a part, so many pixels below its top."""
    return f'<text x="{part.left + part.width // 2}" y="{part.top + below}" {style}>{escape(words)}</text>'


if __name__ == "__main__":
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "images"
    for name, theme in THEMES.items():
        (directory / f"parts-{name}.svg").write_text(drawing(theme), encoding="utf-8")
