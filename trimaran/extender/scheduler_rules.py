"""Rules of kube-scheduler's version that the extender follows. The version is a setting, by default the API server's.

The rules determine the in-tree scores that are added to the extender's scores. They are never guessed: if the rules of
a version are not known, no pod is scored.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from runtime import masking
from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, Sender
from runtime.kubernetes.object_requests import read
from runtime.kubernetes.paths import VERSION
from scoring.kubernetes_version import KUBERNETES_VERSIONS, known_version
from trimaran.extender.placement_predictor import InTreePlugins

SETTING = "extender.kubernetes_version"
_TIMEOUT_SECONDS = 10.0
_RETRY_SECONDS = 5.0
_LONGEST_VERSION, _LONGEST_ERROR = 50, 300
_REPEAT_SECONDS = 60.0  # an upgrade of the API server is noticed within this time
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SchedulerRules:
    """Rules of one version of kube-scheduler.

    Attributes:
        in_tree: in-tree plugins that kube-scheduler scores by, by scheduler name.
        refusal: reason why no pod is scored; "" if the rules are known.
    """

    in_tree: Mapping[str, InTreePlugins] = field(default_factory=dict)
    refusal: str = ""


class RulesByVersion:
    """Current rules, with a thread that reads the version of the API server.

    Args:
        api: Kubernetes API; not closed.
        rules_of: returns the in-tree plugins by scheduler name for a version such as ``1.37``, or raises ValueError.
        configured: version of kube-scheduler from the settings; None to use the API server's.

    Attributes:
        current: rules of the configured version, or of the version that was read last; None before the first read.
    """

    def __init__(
        self, api: Sender, rules_of: Callable[[str], Mapping[str, InTreePlugins]], configured: str | None = None
    ) -> None:
        self._api, self._rules_of, self._configured = api, rules_of, configured
        self._server = ""  # version that the API server reported last
        self._stop = threading.Event()
        self.current = None if configured is None else self._rules(configured)

    @property
    def is_known(self) -> bool:
        """True if the rules are known."""
        return self.current is not None and not self.current.refusal

    @property
    def server_version(self) -> str:
        """Version that the API server reported last; empty before the first read."""
        return self._server

    @property
    def version(self) -> str:
        """Version of kube-scheduler whose rules are followed, such as ``1.37``; empty if its rules are not known."""
        if not self.is_known:
            return ""
        return self._configured or known_version(self._server)

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="version", daemon=True).start()

    def close(self) -> None:
        """Stop the thread."""
        self._stop.set()

    def read(self) -> bool:
        """Read the version of the API server, and return whether this succeeded."""
        try:
            document = read(self._api, VERSION, Deadline.after(_TIMEOUT_SECONDS))
            written = document["gitVersion"]
        except (*REQUEST_FAILURES, TypeError, KeyError) as error:  # or the document has another form
            if self._configured is None and not self._server:  # after the first success, the last version counts
                reason = describe(error).reason if isinstance(error, REQUEST_FAILURES) else error
                error_text = masking.to_line(reason, _LONGEST_ERROR)
                self.current = SchedulerRules(
                    refusal=f"GET /version of the API server failed ({error_text}): set {SETTING}"
                )
            return False
        server = masking.to_line(written, _LONGEST_VERSION)
        if server != self._server:
            self._server = server
            self._follow(server)
        return True

    def _follow(self, server: str) -> None:
        try:
            version = known_version(server)
        except ValueError:
            version = ""
        versions = {"server": server, "version": self._configured or version}
        if self._configured is not None:
            if version != self._configured:
                _log.warning(
                    f"the API server's version differs from {SETTING}; kube-scheduler may be one minor version "
                    "older, and never newer",
                    extra=versions,
                )
        elif version:
            self.current = self._rules(version)
            _log.info("kube-scheduler is assumed to have the API server's version", extra=versions)
        else:
            self.current = SchedulerRules(
                refusal=f"the API server has version {server}, and rules are known for {KUBERNETES_VERSIONS[0]} to "
                f"{KUBERNETES_VERSIONS[-1]}: upgrade trimaran, or set {SETTING} if kube-scheduler has one of these"
            )

    def _rules(self, version: str) -> SchedulerRules:
        try:
            return SchedulerRules(self._rules_of(version))
        except ValueError as error:
            return SchedulerRules(refusal=f"extender.config does not fit kube-scheduler {version}: {error}")

    def _run(self) -> None:
        while not self._stop.wait(_REPEAT_SECONDS if self.read() else _RETRY_SECONDS):
            pass
