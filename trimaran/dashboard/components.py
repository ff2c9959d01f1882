"""What screens are put together from: controls with labels, tables, texts about nodes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from dash import dcc, html

from trimaran.dashboard.data import Data
from trimaran.dashboard.labels import LabelsOfNodes, offered, selector
from watcher.model import NodeMetrics, WatcherMetrics

#: What stands behind the question mark of the page's address.
Query = Mapping[str, str]
#: The color of a picture's lines, to be seen in the light and in the dark.
LINES = "rgba(128,128,128,.25)"
#: Returns the data of whoever asks just now.
Current = Callable[[], Data]


def labelled(for_: str, text: str, control: Any) -> html.Div:
    """Return a control with its label."""
    return html.Div([html.Label(text, htmlFor=for_, id=f"{for_}-label"), control], className="control")


def choice(id_: str, text: str, query: Query, key: str, options: Sequence[str], usual: str) -> html.Div:
    """Return a choice among a few as links, as a part of the address; a store of this id has what is chosen."""
    chosen = chosen_of(query, key, options, usual)
    links = [
        dcc.Link(each, href=f"?{urlencode({**query, key: each})}", className="here" if each == chosen else "way")
        for each in options
    ]
    head = html.Span(f"{text}: ", className="quiet")
    return html.Div([head, *links, dcc.Store(id_, data=chosen)], className="control")


def chosen_of(query: Query, key: str, options: Sequence[str], usual: str) -> str:
    """Return what an address chooses, or the usual where that is nothing there is."""
    return query[key] if query.get(key) in options else usual if usual in options else options[0]


def search_box(id_: str, text: str = "Name has") -> html.Div:
    """Return where to write a part of a name."""
    return labelled(id_, text, dcc.Input(id=id_, type="text", debounce=0.1, value=""))


def pool_choice(id_: str, snapshot: WatcherMetrics) -> html.Div:
    """Return where to write a pool, with those there are."""
    return offering(id_, "Pool", pools_of(snapshot))


def label_choice(id_: str, labels: LabelsOfNodes) -> html.Div:
    """Return where to write a selector of labels, with those that many nodes have."""
    return offering(id_, "Label, such as zone=a,!spot", offered(labels))


def offering(id_: str, text: str, there: Sequence[str], value: str = "") -> html.Div:
    """Return where to write a text, with those that are offered."""
    options = html.Datalist([html.Option(value=each) for each in there], id=f"{id_}-there")
    control = dcc.Input(id=id_, type="text", value=value, debounce=0.1, list=f"{id_}-there")
    return labelled(id_, text, html.Div([control, options]))


def table(caption: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> html.Div:
    """Return a table; the first cell of a row names it."""
    body = [html.Tr([html.Th(row[0], scope="row"), *(html.Td(cell) for cell in row[1:])]) for row in rows]
    head = html.Tr([html.Th(name, scope="col") for name in header])
    region: Any = {"aria-label": caption}  # the parts of Dash do not know that these are texts
    content = html.Table([html.Caption(caption), html.Thead(head), html.Tbody(body)])
    return html.Div(content, className="scrolls", tabIndex=0, role="region", **region)


def grade_of(node: NodeMetrics) -> str:
    """Return how a node's values were obtained."""
    return str(node.metadata.get("grade", "")) or ("suspect" if "suspect" in node.metadata else "measured")


def age_of(snapshot: WatcherMetrics, node: NodeMetrics, now: float) -> float:
    """Return how long ago the span ended that a node's values cover, in seconds."""
    return max(0.0, now - float(node.metadata.get("window_end", snapshot.window.end)))


def matching(snapshot: WatcherMetrics, labels: LabelsOfNodes, search: str, pool: str, label: str) -> tuple[str, ...]:
    """Return the nodes whose name has a text in it, that are in a pool, and whose labels are as a selector says.

    Empty texts choose all.

    Raises:
        ValueError: it is no selector.
    """
    holds, metadata, nothing = selector(label), snapshot.metadata, dict[str, str]()
    return tuple(
        name
        for name in snapshot.data
        if search in name
        and (not pool or pool == str(metadata.get(name, nothing).get("pool", "")))
        and (not label or holds(labels.get(name, nothing)))
    )


def pools_of(snapshot: WatcherMetrics) -> list[str]:
    """Return the pools that nodes are in."""
    return sorted({str(each["pool"]) for each in snapshot.metadata.values() if each.get("pool")})
