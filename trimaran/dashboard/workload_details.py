"""One workload on the Workloads page: requests, percentiles, use by hour and by day, and history."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dash import dcc, html
from plotly import graph_objects as go

from client.errors import ClientError
from runtime.kubernetes.workloads import Workload
from trimaran.dashboard.components import GRID_COLOR, table
from trimaran.dashboard.data import DashboardData
from trimaran.workload_advice import QUANTITY, RESOURCES, cpu_quantity, memory_quantity

_DAY = 86400
_GIB = 2**30
_COLORS = ("#2f6fde", "#c77700", "#2e8b57", "#8a5cd1", "#b8336a")
_UNKNOWN = "-"


def layout(data: DashboardData, name: str) -> list[Any]:
    """Return the page of a workload.

    Args:
        data: data of the viewer.
        name: ``namespace/kind/name``.
    """
    back = html.P(dcc.Link("All workloads", href="?"))
    parts = name.split("/", 2)
    if len(parts) != 3:
        return [html.P(f"{name[:200]!r} is not namespace/kind/name", role="alert"), back]
    try:
        item = data.workload(Workload(*parts))
    except ClientError as error:
        return [html.P(str(error), role="alert"), back]
    if not item:
        return [html.P(f"unknown workload {name[:200]}", role="alert"), back]
    containers: Sequence[Mapping[str, Any]] = item["containers"]
    return [
        html.H2(f"{parts[1]}/{parts[2]} in {parts[0]}"),
        html.P(_facts(item)),
        table(
            "Requests and recommendations",
            ["Container", "Resource", "Request", "Recommended", "Change", "Reason", "Waste of all pods"],
            [_advice(each, resource) for each in containers for resource in RESOURCES],
        ),
        table(
            "Use of one pod",
            [
                "Container",
                "CPU",
                *_quantile_names(containers),
                "Memory",
                "Memory, highest",
                "History",
                "Revision since",
            ],
            [_use(each, float(item["timestamp"])) for each in containers],
        ),
        html.H2("Course of the day"),
        html.Div(
            [
                _course(containers, "cpu_cores", "CPU, cores", 1.0),
                _course(containers, "memory_bytes", "Memory, GiB", float(_GIB)),
            ],
            className="charts",
        ),
        _hours(containers),
        *_days(containers),
        back,
    ]


def _facts(item: Mapping[str, Any]) -> str:
    seen = [f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime(item[key]))} UTC" for key in ("first_seen", "last_seen")]
    hours = item["pod_minutes"] / 60
    return f"{item['pods']:.0f} pods, measured from {seen[0]} to {seen[1]}, {hours:,.0f} pod-hours"


def _advice(container: Mapping[str, Any], resource: str) -> list[str]:
    label, write = {"cpu_cores": "CPU", "memory_bytes": "memory"}[resource], QUANTITY[resource]
    request = container["requests"][resource]
    return [
        container["name"],
        label,
        write(request) if request else _UNKNOWN,
        _known(container["recommended"][resource], write),
        container["verdict"][resource] or _UNKNOWN,
        container["reason"][resource] or _UNKNOWN,
        _known(container["wasted"][resource], write),
    ]


def _quantile_names(containers: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f"CPU, p{quantile}" for quantile in (containers[0]["cpu_cores_percentiles"] if containers else ())]


def _use(container: Mapping[str, Any], now: float) -> list[str]:
    days = (container["last_seen"] - container["first_seen"]) / _DAY
    use, deviation = container["use"], container["deviation"]
    return [
        container["name"],
        f"{cpu_quantity(use['cpu_cores'])} ±{cpu_quantity(deviation['cpu_cores'])}",
        *(_known(value, cpu_quantity) for value in container["cpu_cores_percentiles"].values()),
        f"{memory_quantity(use['memory_bytes'])} ±{memory_quantity(deviation['memory_bytes'])}",
        _known(container["highest_memory_bytes"], memory_quantity),
        f"{days:.1f} days",
        f"{(now - container['revision_since']) / _DAY:.1f} days ago",
    ]


def _known(value: float | None, write: Callable[[float], str]) -> str:
    return _UNKNOWN if value is None else write(value)


def _course(containers: Sequence[Mapping[str, Any]], resource: str, title: str, scale: float) -> Any:
    """Return a chart of the mean use in each hour of the day, with the present request of each container."""
    lines = [[each["by_hour"][resource]] for each in containers]
    x = {"title": {"text": "hour of the day, UTC"}, "dtick": 3}
    return _chart(f"workload-course-{resource}", containers, resource, list(range(24)), x, title, lines, scale)


def _chart(
    id_: str,
    containers: Sequence[Mapping[str, Any]],
    resource: str,
    places: Sequence[int],
    x_axis: Mapping[str, Any],
    title: str,
    lines: Sequence[Sequence[Sequence[float | None]]],
    scale: float,
) -> Any:
    """Return a chart of the use of containers, with the present request of each.

    Args:
        id_: id of the chart.
        containers: the containers.
        resource: resource, such as ``cpu_cores``.
        places: positions of the values on the horizontal axis.
        x_axis: plotly's attributes of the horizontal axis.
        title: title of the vertical axis.
        lines: lines of each container; all but the first are dotted.
        scale: divisor from the resource's unit to the unit of the vertical axis.
    """
    figure = go.Figure()
    for number, (container, of) in enumerate(zip(containers, lines, strict=True)):
        color = _COLORS[number % len(_COLORS)]
        for order, values in enumerate(of):
            figure.add_scatter(
                x=places, y=[None if value is None else round(value / scale, 4) for value in values],
                name=container["name"], mode="lines+markers", showlegend=not order, hoverinfo="skip",
                line={"color": color, "dash": "dot" if order else "solid"},
            )  # fmt: skip
        request = container["requests"][resource] / scale
        if request:
            figure.add_scatter(
                x=[places[0], places[-1]], y=[request, request], name=f"{container['name']}, request", mode="lines",
                line={"color": color, "dash": "dash"}, hoverinfo="skip",
            )  # fmt: skip
    figure.update_layout(
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", font={"color": "#7a808a"}, height=260,
        margin={"l": 60, "r": 10, "t": 10, "b": 40}, showlegend=True, legend={"orientation": "h", "y": 1.15},
        xaxis={"gridcolor": GRID_COLOR, **x_axis},
        yaxis={
            "title": {"text": title}, "rangemode": "tozero", "gridcolor": GRID_COLOR, "zerolinecolor": GRID_COLOR,
        },
    )  # fmt: skip
    graph = dcc.Graph(figure=figure, config={"displayModeBar": False, "staticPlot": True}, id=id_)
    return html.Div(graph, className="chart")


def _days(containers: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return charts and a table of the use on the last measured days; [] if the watcher does not send them."""
    days = [each.get("by_day") for each in containers]
    count = max((len(each["highest_memory_bytes"]) for each in days if each), default=0)
    if not count or not all(days):
        return []
    ages = list(range(count))
    axis = {"title": {"text": "measured days ago"}, "range": [count - 0.5, -0.5], "dtick": 1}
    cpu = [list(each["cpu_cores_percentiles"].values())[::-1] for each in days if each]
    memory = [[each["highest_memory_bytes"]] for each in days if each]
    quantiles = list(days[0]["cpu_cores_percentiles"]) if days[0] else []
    header = ["Days ago"]
    for container in containers:
        texts = (*(f"CPU p{quantile}" for quantile in quantiles), "highest memory")
        header += [f"{container['name']}, {text}" for text in texts]
    rows = [
        [
            str(age),
            *(
                _known(values[age] if age < len(values) else None, write)
                for each in days
                if each
                for values, write in (
                    *((line, cpu_quantity) for line in each["cpu_cores_percentiles"].values()),
                    (each["highest_memory_bytes"], memory_quantity),
                )
            ),
        ]
        for age in ages
    ]
    percentiles = " and ".join(f"p{quantile}" for quantile in reversed(quantiles))
    return [
        html.H2("Use by day"),
        html.Div(
            [
                _chart(
                    "workload-days-cpu_cores", containers, "cpu_cores", ages, axis, f"CPU {percentiles}, cores", cpu, 1
                ),
                _chart(
                    "workload-days-memory_bytes", containers, "memory_bytes", ages, axis, "highest memory, GiB",
                    memory, float(_GIB),
                ),
            ],
            className="charts",
        ),
        html.Details([html.Summary("Values by day"), table("Use of one pod by day (UTC)", header, rows)]),
    ]  # fmt: skip


def _hours(containers: Sequence[Mapping[str, Any]]) -> Any:
    """Return the values of the charts as a table, also for screen readers."""
    header = ["Hour, UTC", *(f"{each['name']}, {label}" for each in containers for label in ("CPU", "memory"))]
    rows = [
        [
            f"{hour:02d}",
            *(
                _known(each["by_hour"][resource][hour], QUANTITY[resource])
                for each in containers
                for resource in RESOURCES
            ),
        ]
        for hour in range(24)
    ]
    return html.Details([html.Summary("Values by hour"), table("Mean use of one pod by the hour", header, rows)])
