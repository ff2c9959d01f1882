"""Store of a trial's state: a ConfigMap, which all replicas share, and which survives restarts.

Writes are conditional on the version that was read: if another replica has written meanwhile, a write changes nothing.
"""

from typing import Any

import orjson
import requests

from runtime.http.gather import Deadline
from runtime.kubernetes.api import Sender
from trimaran.extender.trial.state import TrialState

_SECONDS = 5.0
_KEY = "trial.json"
_CONFLICT = 409


class UnreadableTrial(ValueError):
    """The ConfigMap of a trial has other content."""


class TrialStore:
    """ConfigMap of one trial. For one thread.

    Args:
        api: Kubernetes API.
        namespace: namespace of the ConfigMap.
        trial: name of the trial.

    Attributes:
        name: name of the ConfigMap.
    """

    def __init__(self, api: Sender, namespace: str, trial: str) -> None:
        self._api, self._namespace = api, namespace
        self.name = f"trimaran-trial-{trial}"
        self._path = f"/api/v1/namespaces/{namespace}/configmaps"
        self._version = ""  # resource version of the last read; "" if the ConfigMap does not exist

    def read(self) -> TrialState | None:
        """Return the stored state; None if there is no ConfigMap.

        Raises:
            REQUEST_FAILURES: the API server refuses the request or is unreachable.
            UnreadableTrial: the ConfigMap has other content.
        """
        self._version = ""
        try:
            found = self._api.send("GET", f"{self._path}/{self.name}", Deadline.after(_SECONDS))
        except requests.HTTPError as error:
            if error.response is None or error.response.status_code != requests.codes.not_found:
                raise
            return None
        try:
            self._version = str(found["metadata"]["resourceVersion"])
            return TrialState.from_document(orjson.loads(found["data"][_KEY]))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise UnreadableTrial(
                f"the ConfigMap {self._namespace}/{self.name} is not the record of a trial; delete it, or choose "
                "another extender.trial_name"
            ) from None

    def write(self, state: TrialState) -> bool:
        """Store a state; return False if the ConfigMap has changed since :meth:`read`.

        Raises:
            REQUEST_FAILURES: the API server refuses the request or is unreachable.
        """
        metadata: dict[str, Any] = {"name": self.name, "namespace": self._namespace}
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {_KEY: orjson.dumps(state.as_document(), option=orjson.OPT_INDENT_2).decode()},
        }
        metadata["labels"] = {"app.kubernetes.io/name": "trimaran", "app.kubernetes.io/component": "trial"}
        method, path = "POST", self._path
        if self._version:
            metadata["resourceVersion"] = self._version
            method, path = "PUT", f"{self._path}/{self.name}"
        try:
            written = self._api.send(method, path, Deadline.after(_SECONDS), body)
        except requests.HTTPError as error:
            if error.response is None or error.response.status_code != _CONFLICT:
                raise
            return False
        self._version = str(written["metadata"]["resourceVersion"])
        return True

    def explain(self, error: Exception) -> str:
        """Return a failure of a request as a text, with the missing right if the API server has refused it."""
        response = getattr(error, "response", None)
        if response is None or response.status_code != requests.codes.forbidden:
            return f"the ConfigMap {self._namespace}/{self.name} cannot be read and written: {error}"
        return (
            f"the extender may not keep its trial: a Role in {self._namespace}, bound to its account, needs the rule "
            '{apiGroups: [""], resources: ["configmaps"], verbs: ["get", "create", "update"]}'
        )
