"""API server that reviews tokens and rights to pods, for tests of access."""

from typing import Any

import requests


class ReviewingApi:
    """API server with three tokens: a reader of the namespace default, a reader of all, and a user without rights.

    Attributes:
        reviews: path and body of each review.
        down: whether the API server does not answer.
        rights: namespaces by user; "" stands for all namespaces together.
    """

    def __init__(self) -> None:
        self.reviews: list[tuple[str, Any]] = []
        self.down = False
        self.rights: dict[str, set[str]] = {"reader": {"default"}, "admin": {"default", "kube-system", ""}}

    def send(self, _method: str, path: str, _deadline: object, body: Any = None, *_: object) -> Any:
        if self.down:
            raise requests.ConnectionError("no route")
        self.reviews.append((path, body))
        if path.endswith("tokenreviews"):
            users = {"reader-token": "reader", "admin-token": "admin", "other-token": "other"}
            user = users.get(body["spec"]["token"])
            return {"status": {"authenticated": bool(user), "user": {"username": user, "groups": ["g"]}}}
        spec = body["spec"]
        return {"status": {"allowed": spec["resourceAttributes"]["namespace"] in self.rights.get(spec["user"], ())}}
