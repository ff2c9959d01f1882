"""Routes of the watcher's API, and the one shape of its errors."""

import json

from werkzeug.test import TestResponse

ROUTES = (
    "/", "/api/v1/query", "/compat/watcher", "/compat/watcher/<host>", "/findings", "/history", "/livez", "/metrics",
    "/metrics/nodes", "/openapi.json", "/readyz", "/watcher", "/watcher/<host>", "/watcher/health",
)  # fmt: skip


def check_error(response: TestResponse, status: int, code: str) -> str:
    """Check the one shape of errors, and return the message."""
    assert response.status_code == status
    assert response.mimetype == "application/json"
    body = json.loads(response.data)
    assert body["error"].keys() == {"code", "message"}
    assert body["error"]["code"] == code
    assert isinstance(body["error"]["message"], str)
    assert body["error"]["message"]
    return str(body["error"]["message"])
