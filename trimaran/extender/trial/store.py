"""Store of a trial's state: a ConfigMap, which all replicas share, and which survives restarts."""

import orjson
import requests

from runtime.kubernetes.api import Sender
from runtime.kubernetes.config_map import ConfigMap
from trimaran.extender.trial.state import TrialState

_KEY = "trial.json"
_LABELS = {"app.kubernetes.io/name": "trimaran", "app.kubernetes.io/component": "trial"}


class UnreadableTrial(ValueError):
    """Error for a ConfigMap that does not contain the state of a trial."""


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
        self._namespace, self.name = namespace, f"trimaran-trial-{trial}"
        self._config_map = ConfigMap(api, namespace, self.name, _LABELS)

    def read(self) -> TrialState | None:
        """Return the stored state; None if there is no ConfigMap.

        Raises:
            REQUEST_FAILURES: the API server refuses the request or is unreachable.
            UnreadableTrial: the ConfigMap does not contain the state of a trial.
        """
        data = self._config_map.read()
        if data is None:
            return None
        try:
            return TrialState.from_document(orjson.loads(data[_KEY]))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise UnreadableTrial(
                f"the {self._config_map} is not the record of a trial; delete it, or choose another extender.trial_name"
            ) from None

    def write(self, state: TrialState) -> bool:
        """Store a state; return False if the ConfigMap has changed since :meth:`read`.

        Raises:
            REQUEST_FAILURES: the API server refuses the request or is unreachable.
        """
        text = orjson.dumps(state.as_document(), option=orjson.OPT_INDENT_2).decode()
        return self._config_map.write({_KEY: text})

    def explain(self, error: Exception) -> str:
        """Return a text about a failed request, with the missing permission if the API server refused the request."""
        response = getattr(error, "response", None)
        if response is None or response.status_code != requests.codes.forbidden:
            return f"the {self._config_map} cannot be read or written: {error}"
        return (
            f"the extender may not store its trial: a Role in {self._namespace}, bound to its account, needs the rule "
            '{apiGroups: [""], resources: ["configmaps"], verbs: ["get", "create", "update"]}'
        )
