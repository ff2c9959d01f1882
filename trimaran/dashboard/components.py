"""Building blocks that the dashboard's pages share: labeled controls, tables, and filters of nodes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from dash import dcc, html

from trimaran.dashboard.data import DashboardData
from trimaran.dashboard.labels import LabelsByNode, common_labels, parse_selector
from watcher.model import NodeMetrics, WatcherMetrics

#: Query parameters of the page's URL.
Query = Mapping[str, str]
#: Color of a chart's grid lines, visible in light and dark mode.
GRID_COLOR = "rgba(128,128,128,.25)"
#: Returns the data that the viewer of the current request may see.
CurrentData = Callable[[], DashboardData]


def labeled_control(for_: str, text: str, control: Any) -> html.Div:
    """Return a form control with its label."""
    return html.Div([html.Label(text, htmlFor=for_, id=f"{for_}-label"), control], className="control")


def link_choice(id_: str, text: str, query: Query, key: str, options: Sequence[str], default: str) -> html.Div:
    """Return a row of links, one for each value of a query parameter; a ``dcc.Store`` holds the selected value."""
    selected = selected_option(query, key, options, default)
    links = [
        dcc.Link(
            option,
            href=f"?{urlencode({**query, key: option})}",
            className="current" if option == selected else "link",
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


def table(caption: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> html.Div:
    """Return a table in a scrollable region; the first cell of each row is its header."""
    body = [html.Tr([html.Th(row[0], scope="row"), *(html.Td(cell) for cell in row[1:])]) for row in rows]
    head = html.Tr([html.Th(name, scope="col") for name in header])
    region: Any = {"aria-label": caption}  # Dash's component types do not declare aria attributes
    content = html.Table([html.Caption(caption), html.Thead(head), html.Tbody(body)])
    return html.Div(content, className="scrolls", tabIndex=0, role="region", **region)


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
