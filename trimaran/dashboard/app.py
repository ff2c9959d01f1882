"""WSGI application of the dashboard: its pages, navigation and login."""

import logging
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

# Scoring and the client would import these modules in the first request, which would wait for the imports.
import scipy.special  # noqa: F401
from dash import Dash, Input, Output, dcc, html
from flask import Flask, redirect
from pydantic import validate_call
from werkzeug import Response

import watcher.wire.history  # noqa: F401
from client.errors import ClientError
from trimaran.dashboard import decisions, moves, nodes, overview, plane, pod, workloads
from trimaran.dashboard.callback_requests import check_callback_requests
from trimaran.dashboard.data import PageAccess
from trimaran.dashboard.page_context import PageContext
from trimaran.dashboard.sessions import require_login, set_security_headers

_UNREADABLE = (
    "This page cannot be shown: the answer of a service has unexpected fields. Is the service of another version? "
    "The dashboard's log names the field."
)
_log = logging.getLogger(__name__)


def create_app(
    access: PageAccess, context: PageContext | None = None, *, secure: bool = False, prefix: str = ""
) -> Flask:
    """Create the WSGI application of the dashboard.

    Args:
        access: decides who may view the dashboard, and reads the watcher for them.
        context: data sources in addition to the watcher; by default none.
        secure: the dashboard is reached by HTTPS only, so that cookies are marked Secure.
        prefix: path prefix of the dashboard in the browser; the embedding server strips it from requests.
    """
    context = context or PageContext()
    pages: list[Any] = [overview, plane, nodes, workloads, moves, pod] + (
        [decisions] if context.decisions or context.scheduler else []
    )
    server = Flask("dashboard", static_folder=None)
    untyped_server: Any = server  # Dash accepts a Flask application, but its type hints do not
    app = Dash(
        "dashboard",
        server=untyped_server,
        requests_pathname_prefix=f"{prefix}/",
        routes_pathname_prefix="/",
        title="trimaran",
        update_title="",
        assets_folder=str(Path(__file__).parent / "assets"),
        serve_locally=True,
        suppress_callback_exceptions=True,  # the elements of a page exist only while it is shown
        include_pages_meta=False,
        meta_tags=[{"name": "viewport", "content": "width=device-width"}],
        index_string=_INDEX,
    )

    @server.get("/trust")
    def merged() -> Response:
        return redirect(f"{prefix}/", 308)  # the page of earlier versions; its content is now on the Overview

    current = require_login(server, access, secure=secure)
    check_callback_requests(server, app)
    set_security_headers(server, app.csp_hashes)
    app.layout = html.Div(
        [
            dcc.Location(id="location"),
            html.Header([html.H1("trimaran"), html.Nav(id="navigation")]),
            html.Main(id="page"),
        ]
    )

    @app.callback(
        Output("page", "children"),
        Output("navigation", "children"),
        Input("location", "pathname"),
        Input("location", "search"),
    )
    @validate_call
    def show(path: str | None, search: str | None) -> tuple[Any, Any]:
        query = dict(parse_qsl((search or "").removeprefix("?")))
        selected = next((page for page in pages if path == prefix + page.PATH), overview)
        links = [
            dcc.Link(page.TITLE, href=prefix + page.PATH, className="current" if page is selected else "link")
            for page in pages
        ]
        try:
            content = selected.layout(current(), query, context)
        except ClientError as error:
            content = [html.P(str(error), role="alert")]
        except (AttributeError, KeyError, TypeError, ValueError):  # a service of another version has other fields
            _log.exception("a page cannot be shown", extra={"page": selected.TITLE})
            content = [html.P(_UNREADABLE, role="alert")]
        return [html.H2(selected.TITLE), *content], links

    for page in pages:
        page.register(app, current, context)

    return server


_INDEX = """<!DOCTYPE html>
<html lang="en">
<head>{%metas%}<link rel="icon" href="data:,"><title>{%title%}</title>{%css%}</head>
<body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer></body>
</html>"""
