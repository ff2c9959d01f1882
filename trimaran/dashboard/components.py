"""Building blocks that the dashboard's pages share: labeled controls, tables, and filters of nodes."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from urllib.parse import urlencode

from dash import dcc, html

from trimaran.dashboard.data import DashboardData
from trimaran.dashboard.labels import LabelsByNode, common_labels, parse_selector
from trimaran.dashboard.markup import MarkupDiv
from watcher.model import NodeMetrics, WatcherMetrics

#: Query parameters of the page's URL.
Query = Mapping[str, str]
#: Color of a chart's grid lines, visible in light and dark mode.
GRID_COLOR = "rgba(128,128,128,.25)"
#: Returns the data that the viewer of the current request may see.
CurrentData = Callable[[], DashboardData]
#: Lower ends of the load levels, percent; each has a color in the style sheet.
LOAD_LEVELS = (0, 50, 70, 80, 90)
#: Load at which a node counts as hot, percent: the default of nodes.hot_percent.
HOT_PERCENT = 80
_LONG = 40  # characters; a longer text in a cell may be cut off
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def labeled_control(for_: str, text: str, control: Any) -> html.Div:
    """Return a form control with its label."""
    return html.Div([html.Label(text, htmlFor=for_, id=f"{for_}-label"), control], className="control")


def link_choice(id_: str, text: str, query: Query, key: str, options: Sequence[str], default: str) -> html.Div:
    """Return a row of links, one for each value of a query parameter; a ``dcc.Store`` holds the selected value."""
    selected = selected_option(query, key, options, default)
    links = [
        dcc.Link(
            option, href=f"?{urlencode({**query, key: option})}", className="current" if option == selected else "link"
        )
        for option in options
    ]
    head = html.Span(f"{text}: ", className="quiet")
    return html.Div([head, *links, dcc.Store(id_, data=selected)], className="control")


def selected_option(query: Query, key: str, options: Sequence[str], default: str) -> str:
    """Return the option that a query parameter selects; if it is not valid, the default, or else the first option."""
    return query[key] if query.get(key) in options else default if default in options else options[0]


def search_box(id_: str, text: str = "Name contains") -> html.Div:
    """Return a labeled text field to search for a part of a name."""
    return labeled_control(id_, text, dcc.Input(id=id_, type="text", debounce=0.1, value=""))


def pool_input(id_: str, snapshot: WatcherMetrics) -> html.Div:
    """Return a labeled text field for a node pool, which suggests the pools of the nodes."""
    return suggested_input(id_, "Pool", pools(snapshot))


def label_input(id_: str, labels: LabelsByNode) -> html.Div:
    """Return a labeled text field for a label selector, which suggests common labels of the nodes."""
    return suggested_input(id_, "Labels, such as zone=a,!spot", common_labels(labels))


def suggested_input(id_: str, text: str, suggestions: Sequence[str], value: str = "") -> html.Div:
    """Return a labeled text field that suggests values."""
    options = html.Datalist([html.Option(value=suggestion) for suggestion in suggestions], id=f"{id_}-suggestions")
    control = dcc.Input(id=id_, type="text", value=value, debounce=0.1, list=f"{id_}-suggestions")
    return labeled_control(id_, text, html.Div([control, options]))


def table(caption: str, header: Sequence[str], rows: Iterable[Sequence[Any]], *, wraps: bool = False) -> html.Div:
    """Return a table in a scrollable region; the first cell of each row is its header.

    Cells have one line. A longer text is cut off, with a tooltip; with ``wraps`` the text takes several lines.
    """
    body = [html.Tr([html.Th(row[0], scope="row"), *(_cell(cell) for cell in row[1:])]) for row in rows]
    head = html.Tr([html.Th(name, scope="col") for name in header])
    region: Any = {"aria-label": caption}  # Dash's component types do not declare aria attributes
    content = html.Table([html.Caption(caption), html.Thead(head), html.Tbody(body)])
    name = "scrolls wraps" if wraps else "scrolls"
    return MarkupDiv(content, className=name, tabIndex=0, role="region", **region)


def _cell(content: Any) -> html.Td:
    return html.Td(content, title=content) if isinstance(content, str) and len(content) > _LONG else html.Td(content)


class Tone(StrEnum):
    """Color and sign of a tile; the sign is for color-blind readers and for print."""

    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"
    NONE = "none"


_SIGNS = {Tone.GOOD: "✓", Tone.WARNING: "▲", Tone.BAD: "✕", Tone.NONE: "-"}


def tile(title: str, word: Any, details: Sequence[Any], href: str | None, tone: Tone) -> html.Div:
    """Return a tile: a title that leads to a page, the state in a few words, and a line for each detail."""
    head = dcc.Link(title, href=href) if href else html.Span(title)
    sign: Any = {"aria-hidden": "true"}  # Dash's component types do not declare aria attributes
    state = html.P([html.Span(_SIGNS[tone], className="sign", **sign), " ", word], className="word")
    return html.Div([html.H2(head), state, *(html.P(detail) for detail in details)], className=f"tile {tone}")


def node_link(name: str) -> dcc.Link:
    """Return a link to the page of a node."""
    return dcc.Link(name, href=f"nodes?{urlencode({'node': name})}")


def workload_link(name: str) -> dcc.Link:
    """Return a link to the page of a workload, named ``namespace/kind/name``; its text lacks the namespace."""
    return dcc.Link(name.split("/", 1)[-1], href=f"workloads?{urlencode({'workload': name})}")


def duration_text(seconds: float) -> str:
    """Return a duration in its largest whole unit, such as ``3 min``."""
    length = max(0.0, seconds)
    size, unit = next((each for each in _UNITS if length >= each[0]), _UNITS[-1])
    return f"{length / size:.0f} {unit}" if length < 2**40 else "-"


def time_ago(at: float, now: float | None = None) -> Any:
    """Return a Unix time as its distance from now, such as ``3 min ago``, with date and time (UTC) as its tooltip."""
    if not 0 < at < 2**37:  # the calendar ends in the year 9999
        return "-"
    now, moment = time.time() if now is None else now, datetime.fromtimestamp(at, UTC)
    text = f"{duration_text(now - at)} ago" if at <= now else f"in {duration_text(at - now)}"
    return html.Time(text, dateTime=moment.isoformat(), title=f"{moment:%Y-%m-%d %H:%M:%S} UTC")


def load_level(percent: float) -> int:
    """Return the number of a load's level, from 0 for the lowest."""
    return max(0, sum(percent >= lowest for lowest in LOAD_LEVELS) - 1)


def load_bar(percent: float | None, text: str | None = None) -> Any:
    """Return a load as a bar, colored by its level, with its number; ``-`` if it is unknown.

    Args:
        percent: load, percent of capacity.
        text: text in place of the number.
    """
    if percent is None or math.isnan(percent):
        return "-"
    width = f"{min(max(percent, 0.0), 100.0):.0f}%"
    bar = html.Span(html.Span(className=f"load-{load_level(percent)}", style={"width": width}), className="bar")
    return html.Span([bar, text or f"{percent:.0f} %"], className="load")


def load_legend() -> html.P:
    """Return the legend of the colors of :func:`load_bar`."""
    ends = (*LOAD_LEVELS[1:], None)
    texts = [f"{low} to {end} %" if end else f"{low} % and more" for low, end in zip(LOAD_LEVELS, ends, strict=True)]
    marks = [
        html.Span([html.Span(className=f"mark load-{level}"), text], className="legend")
        for level, text in enumerate(texts)
    ]
    return html.P(["Load: ", *marks], className="hint")


def history_alert(data: DashboardData, *metrics: tuple[str, str]) -> list[html.P]:
    """Return a message if a history cannot be read, else []. Without the message, the history would seem to be empty.

    Args:
        data: data of the viewer.
        metrics: metric type and operator of each history that the page shows; by default the mean CPU load.
    """
    reasons = dict.fromkeys(data.history_failure(*metric) for metric in metrics or (("CPU", "AVG"),))
    text = "The history of the last day cannot be read, so past values are missing: "
    return [html.P(text + reason, role="alert") for reason in reasons if reason]


def age_seconds(snapshot: WatcherMetrics, node: NodeMetrics, now: float) -> float:
    """Return the age of a node's values: seconds since the end of the window that they cover."""
    return max(0.0, now - float(node.metadata.get("window_end", snapshot.window.end)))


def matching_nodes(
    snapshot: WatcherMetrics, labels: LabelsByNode, search: str, pool: str, label: str
) -> tuple[str, ...]:
    """Return the names of the nodes that match all filters; an empty filter matches every node.

    Args:
        snapshot: nodes with their metadata.
        labels: labels by node name.
        search: part of the node's name.
        pool: name of the node pool.
        label: label selector.

    Raises:
        ValueError: the selector is not valid.
    """
    is_selected, metadata, empty = parse_selector(label), snapshot.metadata, dict[str, str]()
    return tuple(
        name
        for name in snapshot.data
        if search in name
        and (not pool or pool == str(metadata.get(name, empty).get("pool", "")))
        and (not label or is_selected(labels.get(name, empty)))
    )


def pools(snapshot: WatcherMetrics) -> list[str]:
    """Return the names of all node pools in a snapshot, sorted."""
    return sorted({str(fields["pool"]) for fields in snapshot.metadata.values() if fields.get("pool")})
