"""Routes of the watcher's API, and a check of its error body."""

import json

from werkzeug.test import TestResponse

ROUTES = (
    "/", "/api/v1/query", "/compat/watcher", "/compat/watcher/<host>", "/findings", "/history", "/livez", "/metrics",
    "/metrics/nodes", "/openapi.json", "/pods/history", "/readyz", "/watcher", "/watcher/<host>", "/watcher/health",
    "/workloads", "/workloads/<namespace>/<kind>/<name>", "/workloads/totals",
)  # fmt: skip


def check_error(response: TestResponse, status: int, code: str) -> str:
    """Check the status and body of an error response; return the message."""
    assert response.status_code == status
    assert response.mimetype == "application/json"
    body = json.loads(response.data)
    assert body["error"].keys() == {"code", "message"}
    assert body["error"]["code"] == code
    assert isinstance(body["error"]["message"], str)
    assert body["error"]["message"]
    return str(body["error"]["message"])
