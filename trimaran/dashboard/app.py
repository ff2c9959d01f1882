"""The page put together: its screens, the way between them, and who may look."""

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from dash import Dash, Input, Output, dcc, html
from flask import Flask

from client.errors import ClientError
from trimaran.dashboard import decisions, nodes, plane, pod, trust
from trimaran.dashboard.data import Readers
from trimaran.dashboard.page_context import Beside
from trimaran.dashboard.sessions import guard, protect


def create_app(readers: Readers, beside: Beside | None = None, *, secure: bool = False, place: str = "") -> Flask:
    """Return the WSGI application.

    Args:
        readers: say who may look, and see the watcher.
        beside: what else it reads.
        secure: whether the page is reached by HTTPS alone.
        place: the beginning of its paths, which the server that it is part of takes off.
    """
    beside = beside or Beside()
    screens: list[Any] = [plane, nodes, trust, pod] + ([decisions] if beside.decisions else [])
    server = Flask("dashboard", static_folder=None)
    given: Any = server  # Dash takes it, but does not say so
    app = Dash(
        "dashboard",
        server=given,
        requests_pathname_prefix=f"{place}/",
        routes_pathname_prefix="/",
        title="trimaran",
        update_title="",
        assets_folder=str(Path(__file__).parent / "assets"),
        serve_locally=True,
        suppress_callback_exceptions=True,  # screens come and go
        include_pages_meta=False,
        meta_tags=[{"name": "viewport", "content": "width=device-width"}],
        index_string=_INDEX,
    )
    current = guard(server, readers, secure=secure)
    protect(server, app.csp_hashes)
    app.layout = html.Div(
        [
            dcc.Location(id="place"),
            html.Header([html.H1("trimaran"), html.Nav(id="ways")]),
            html.Main(id="screen"),
        ]
    )

    @app.callback(
        Output("screen", "children"),
        Output("ways", "children"),
        Input("place", "pathname"),
        Input("place", "search"),
    )
    def show(path: str | None, search: str | None) -> tuple[Any, Any]:
        query = dict(parse_qsl((search or "").removeprefix("?")))
        chosen = next((each for each in screens if path == place + each.PATH), plane)
        ways = [
            dcc.Link(each.TITLE, href=place + each.PATH, className="here" if each is chosen else "way")
            for each in screens
        ]
        try:
            shown = chosen.layout(current(), query, beside)
        except ClientError as error:
            shown = [html.P(str(error), role="alert")]
        return [html.H2(chosen.TITLE), *shown], ways

    for each in screens:
        each.register(app, current, beside)

    return server


_INDEX = """<!DOCTYPE html>
<html lang="en">
<head>{%metas%}<link rel="icon" href="data:,"><title>{%title%}</title>{%css%}</head>
<body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer></body>
</html>"""
