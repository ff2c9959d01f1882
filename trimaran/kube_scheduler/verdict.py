"""Verdict on a configuration file by kube-scheduler's own rules, without running a kube-scheduler.

Source: ValidateKubeSchedulerConfiguration of k8s.io/kubernetes/pkg/scheduler/apis/config/validation, SetDefaults of
apis/config/v1, and New of pkg/scheduler, all with the feature gates that are on by default.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from runtime.errors import quoted
from scoring.kubernetes_version import known_version
from trimaran.kube_scheduler.arguments import ArgumentRules
from trimaran.kube_scheduler.decoding import Decoder
from trimaran.kube_scheduler.findings import Findings, StartVerdict
from trimaran.kube_scheduler.framework import Framework
from trimaran.kube_scheduler.go_yaml import Refused, Unclear, go_values
from trimaran.kube_scheduler.names import is_extended_resource, is_qualified
from trimaran.kube_scheduler.table import table_of

_KIND = "KubeSchedulerConfiguration"
_GROUP_VERSION = "kubescheduler.config.k8s.io/v1"
# Plugins that v1 refuses by name, wherever they are enabled or configured.
_REMOVED = frozenset({"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"})
_FILES, _DATA = ("caFile", "certFile", "keyFile"), ("caData", "certData", "keyData")
_SECOND = 10**9
_CONTENT_TYPES = frozenset({"", "application/json", "application/vnd.kubernetes.protobuf"})


def verdict_of(
    text: bytes, kubernetes_version: str, others: Collection[str] | None = (), scores: Collection[str] = ()
) -> StartVerdict:
    """Judge a file by the rules of a kube-scheduler.

    Args:
        text: the file.
        kubernetes_version: version of kube-scheduler.
        others: names of plugins that this kube-scheduler has in addition to those of Kubernetes; None for any name.
        scores: names of the ``others`` that only score nodes, and whose arguments are checked elsewhere.

    Raises:
        ValueError: the version is not known.
    """
    version = known_version(kubernetes_version)
    values, findings, judge = None, Findings(), f"the rules of kube-scheduler {version}"
    try:
        values = go_values(text)
    except Refused as error:
        findings.refuse("", str(error))
    except Unclear as error:
        findings.leave("", str(error))
    else:
        _File(values, version, others, scores, findings).check()
    named = _names_of(values)
    refused = tuple(replace(each, name=named(each.path)) if each.path else each for each in findings.refused)
    return StartVerdict(refused, tuple(findings.unchecked), tuple(findings.missing), judge)


def _names_of(values: Any) -> Callable[[str], str]:
    """Return a function that shortens a path for messages, such as to ``NodeResourcesFitArgs.resources``."""
    names = {
        f"profiles[{i}].pluginConfig[{j}].args": f"{entry['name']}Args"
        for i, profile in _mappings(values, "profiles")
        for j, entry in _mappings(profile, "pluginConfig")
        if isinstance(entry.get("name"), str)
    }

    def name(path: str) -> str:
        for prefix, short in names.items():
            if path.startswith(f"{prefix}."):
                return short + path.removeprefix(prefix)
        return path if path.startswith(("profiles[", "extenders[")) else f"{_KIND}.{path}"

    return name


def _mappings(values: Any, key: str) -> list[tuple[int, Mapping[str, Any]]]:
    listed = values.get(key) if isinstance(values, Mapping) else None
    return [(i, each) for i, each in enumerate(listed if isinstance(listed, list) else ()) if isinstance(each, Mapping)]


class _File:
    """Validator of one configuration file."""

    def __init__(
        self, values: Any, version: str, others: Collection[str] | None, scores: Collection[str], findings: Findings
    ) -> None:
        self._values = values
        self._table = table = table_of(version)
        self._others = others
        self._scores = scores
        self._findings = findings
        self._unless = findings.refuse_unless
        self._decoder = Decoder(table.structs, findings)
        self._rules = ArgumentRules(version, table, findings)

    def check(self) -> None:
        if not isinstance(self._values, Mapping):
            return self._findings.refuse("", f"the file is not a {_KIND}")
        self._check_kind(self._values, _KIND, "", required=True)
        decoded = self._decoder.decode(self._values, _KIND, "")
        profiles = decoded.get("profiles", []) or [{}]
        arguments = [self._decoded_arguments(index, profile) for index, profile in enumerate(profiles)]
        if self._findings.refused:
            return None  # as in kube-scheduler, which validates only what it could decode
        self._check_numbers(decoded)
        self._check_leader_election(decoded.get("leaderElection", {}))
        self._check_client(decoded.get("clientConnection", {}))
        extenders = decoded.get("extenders", [])
        ignored = any(
            each.get("ignoredByScheduler") for extender in extenders for each in extender.get("managedResources", [])
        )
        frameworks = [
            self._check_profile(index, profile, arguments[index], ignored_by_extender=ignored)
            for index, profile in enumerate(profiles)
        ]
        self._check_names(profiles)
        self._check_queue_sorts(profiles, frameworks)
        self._check_extenders(extenders)
        return None

    def _check_kind(self, values: Mapping[str, Any], kind: str, path: str, *, required: bool = False) -> None:
        """Check ``apiVersion`` and ``kind``; in the arguments of a plugin both may be absent."""
        for key, expected in {"apiVersion": _GROUP_VERSION, "kind": kind}.items():
            written, where = values.get(key), f"{path}.{key}" if path else key
            if (written is None or written == "") and not required:
                continue
            if isinstance(written, str) and (written.endswith("/__internal") or written == _GROUP_VERSION[:-2] + "/"):
                self._findings.leave(where, f"{quoted(written)} is not known")
            else:
                self._unless(written == expected, where, f"must be {expected}, got {quoted(written)}")

    def _decoded_arguments(self, number: int, profile: Mapping[str, Any]) -> dict[str, Any]:
        """Return the decoded arguments of the plugins whose type of arguments is known, by path."""
        decoded = {}
        for index, entry in enumerate(profile.get("pluginConfig", [])):
            kind, written = f"{entry.get('name', '')}Args", entry.get("args")
            if kind in self._table.structs:
                path = f"profiles[{number}].pluginConfig[{index}].args"
                if isinstance(written, Mapping):
                    self._check_kind(written, kind, path)
                decoded[path] = self._decoder.decode(written, kind, path) or {}
        return decoded

    def _check_numbers(self, decoded: Mapping[str, Any]) -> None:
        self._unless(decoded.get("parallelism", 16) > 0, "parallelism", "must be above 0")
        self._check_percentage("", decoded)
        initial, most = decoded.get("podInitialBackoffSeconds", 1), decoded.get("podMaxBackoffSeconds", 10)
        self._unless(initial > 0, "podInitialBackoffSeconds", "must be above 0")
        below = f"must be at least podInitialBackoffSeconds, {initial}; it is {most}"
        self._unless(most >= initial, "podMaxBackoffSeconds", below)

    def _check_percentage(self, path: str, values: Mapping[str, Any]) -> None:
        valid = 0 <= values.get("percentageOfNodesToScore", 0) <= 100
        self._unless(valid, f"{path}percentageOfNodesToScore", "must be 0 to 100")

    def _check_leader_election(self, election: Mapping[str, Any]) -> None:
        if not election.get("leaderElect", True):
            return
        lease, renew, retry = (
            election.get(key) or seconds * _SECOND
            for key, seconds in {"leaseDuration": 15, "renewDeadline": 10, "retryPeriod": 2}.items()
        )
        for key, value in {"leaseDuration": lease, "renewDeadline": renew, "retryPeriod": retry}.items():
            self._unless(value > 0, f"leaderElection.{key}", "must be above 0")
        self._unless(lease > renew, "leaderElection.leaseDuration", "must be longer than renewDeadline")
        # The leader elector refuses this only when kube-scheduler runs, so --write-config-to does not report it.
        if 0 < renew <= retry * 6 // 5:
            self._findings.leave("leaderElection.renewDeadline", "must be longer than 1.2 times retryPeriod")
        lock = election.get("resourceLock", "") or "leases"
        self._unless(lock == "leases", "leaderElection.resourceLock", "must be leases")

    def _check_client(self, client: Mapping[str, Any]) -> None:
        self._unless(client.get("burst", 0) >= 0, "clientConnection.burst", "must be at least 0")
        for key in ("contentType", "acceptContentTypes"):
            if not set(client.get(key, "").replace(" ", "").split(",")) <= _CONTENT_TYPES:
                self._findings.leave(f"clientConnection.{key}", "other types than JSON and Protobuf are not known")

    def _check_profile(
        self, number: int, profile: Mapping[str, Any], arguments: Mapping[str, Any], *, ignored_by_extender: bool
    ) -> Framework:
        path, plugins = f"profiles[{number}]", profile.get("plugins", {})
        self._check_percentage(f"{path}.", profile)
        for point, plugin_set in plugins.items():
            for index, each in enumerate(plugin_set.get("enabled", []) if point != "multiPoint" else ()):
                removed = each.get("name") in _REMOVED
                self._unless(not removed, f"{path}.plugins.{point}.enabled[{index}].name", "v1 has no such plugin")
        framework = Framework(path, plugins, self._table, self._others, self._scores)
        framework.build(self._findings)
        configured = self._check_plugin_config(path, profile, arguments)
        if "NodeResourcesFit" in framework.needed and "NodeResourcesFit" in configured:
            where = configured["NodeResourcesFit"]
            self._rules.check_fit(where, arguments[where], ignored_by_extender=ignored_by_extender)
        elsewhere = {name for point, its in plugins.items() if point != "podGroupPostFilter" for name in _enabled(its)}
        for name in sorted(framework.needed - elsewhere - configured.keys()):
            # Upstream's list of enabled plugins leaves this extension point out: no default arguments are created.
            if f"{name}Args" in self._table.structs and name in _enabled(plugins.get("podGroupPostFilter", {})):
                self._unless(name in self._by_default(plugins), f"{path}.pluginConfig", f"{name} needs arguments")
        if ignored_by_extender and not {"NodeResourcesFit"} & (framework.needed | configured.keys()):
            self._findings.refuse("extenders", f"ignoredByScheduler needs NodeResourcesFit in {path}")
        return framework

    def _by_default(self, plugins: Mapping[str, Any]) -> set[str]:
        disabled = {each.get("name", "") for each in plugins.get("multiPoint", {}).get("disabled", [])}
        return set() if "*" in disabled else set(self._table.defaults) - disabled

    def _check_plugin_config(
        self, path: str, profile: Mapping[str, Any], arguments: Mapping[str, Any]
    ) -> dict[str, str]:
        """Check the entries of ``pluginConfig``; return the path of the arguments by plugin."""
        configured: dict[str, str] = {}
        for index, entry in enumerate(profile.get("pluginConfig", [])):
            name, where = entry.get("name", ""), f"{path}.pluginConfig[{index}]"
            self._unless(name not in configured, where, f"{name} is configured twice")
            self._unless(name not in _REMOVED, where, f"v1 has no plugin {name}")
            configured[name] = f"{where}.args"
            if f"{where}.args" in arguments:
                self._rules.check(name, f"{where}.args", arguments[f"{where}.args"])
        return configured

    def _check_names(self, profiles: list[dict[str, Any]]) -> None:
        default = "default-scheduler" if len(profiles) == 1 else ""
        seen = set()
        for number, profile in enumerate(profiles):
            name, path = profile.get("schedulerName", default), f"profiles[{number}].schedulerName"
            self._unless(name, path, "must not be empty")
            self._unless(name not in seen, path, f"an earlier profile has the name {quoted(name)}")
            seen.add(name)

    def _check_queue_sorts(self, profiles: list[dict[str, Any]], frameworks: list[Framework]) -> None:
        def written(profile: Mapping[str, Any]) -> Any:
            plugin_set = profile.get("plugins", {}).get("queueSort", {})
            enabled = [(each.get("name", ""), each.get("weight", 0)) for each in plugin_set.get("enabled", [])]
            return enabled, [each.get("name", "") for each in plugin_set.get("disabled", [])]

        for number, profile in enumerate(profiles[1:], 1):
            path = f"profiles[{number}]"
            first, own = frameworks[0].queue_sort, frameworks[number].queue_sort
            same = written(profile) == written(profiles[0]) and (not first or not own or first == own)
            self._unless(same, f"{path}.plugins.queueSort", "must be the same in all profiles")
            for name in {*first, *own}:
                equal = _arguments(profile, name) == _arguments(profiles[0], name)
                self._unless(equal, f"{path}.pluginConfig", f"the arguments of {name} must be the same in all profiles")

    def _check_extenders(self, extenders: list[dict[str, Any]]) -> None:
        resources: set[str] = set()
        for number, extender in enumerate(extenders):
            path = f"extenders[{number}]"
            if extender.get("prioritizeVerb"):
                self._unless(extender.get("weight", 0) > 0, f"{path}.weight", "must be above 0 with a prioritizeVerb")
            for index, resource in enumerate(extender.get("managedResources", [])):
                name, where = resource.get("name", ""), f"{path}.managedResources[{index}].name"
                self._unless(is_qualified(name) and is_extended_resource(name), where, "must be an extended resource")
                self._unless(name not in resources, where, f"{name} is listed already")
                resources.add(name)
            self._check_tls(f"{path}.tlsConfig", extender.get("tlsConfig", {}))
        binders = [extender for extender in extenders if extender.get("bindVerb")]
        self._unless(len(binders) <= 1, "extenders", "only one extender can have a bindVerb")

    def _check_tls(self, path: str, tls: Mapping[str, Any]) -> None:
        if tls.get("insecure") and (tls.get("caFile") or tls.get("caData")):
            self._findings.refuse(path, "insecure excludes a caFile and caData")
        for key in (*_FILES, *_DATA):
            if tls.get(key):
                what = f"the file {tls[key]}" if key in _FILES else "the certificate or key"
                self._findings.leave(f"{path}.{key}", f"{what} is not read")


def _enabled(plugin_set: Mapping[str, Any]) -> list[str]:
    return [each.get("name", "") for each in plugin_set.get("enabled", [])]


def _arguments(profile: Mapping[str, Any], name: str) -> Any:
    return next((each.get("args") for each in profile.get("pluginConfig", []) if each.get("name", "") == name), None)
