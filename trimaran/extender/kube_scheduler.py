"""Conversion of a KubeSchedulerConfiguration with trimaran's plugins, so that a stock kube-scheduler can use it.

The plugins that a stock kube-scheduler does not have are removed from the file, and the extender is added. The weights
of the remaining score plugins and of other extenders are multiplied by 10, and all plugins are named: see
:mod:`trimaran.extender.profiles`. Nothing else changes, so that kube-scheduler decides as without the extender while
the extender does not act, is down, or is removed from the file.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from runtime.errors import quoted
from scoring import SchedulerConfiguration
from scoring.kubernetes_version import LATEST_VERSION, default_score_weights, in_tree_plugins, known_version
from trimaran.extender.placement_predictor import InTreePlugins
from trimaran.extender.profiles import ANSWER_FACTOR, Profiles, our_plugins, without_pod_rules
from trimaran.plugins import read_scheduler_file

MAX_TIMEOUT_SECONDS = 0.5
_PRIORITIZE, _FILTER, _PREEMPT = "prioritize", "filter", "preempt"
_MAX_WEIGHT = 2**31 - 1  # kube-scheduler reads an int32
_LATEST = "kubescheduler.config.k8s.io/v1"
_READABLE = frozenset({_LATEST, f"{_LATEST}beta3"})  # older versions have plugins and defaults that no longer exist
_GO_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class ExtenderEndpoint:
    """Address and options with which kube-scheduler calls the extender.

    Attributes:
        url: URL such as ``https://trimaran-extender.trimaran.svc:2021``.
        ca_file: path of the CA of the extender's certificate, on kube-scheduler's machine; required for an https URL.
        certificate, key: client certificate, if the extender requires one.
        timeout_ms: timeout after which kube-scheduler goes on without the extender, at most 500.
        filters: whether kube-scheduler also calls the extender's filter.

    Raises:
        ValueError: the attributes contradict each other; the message names the remedy.
    """

    url: str
    ca_file: str = ""
    certificate: str = ""
    key: str = ""
    timeout_ms: int = 500
    filters: bool = False

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"the extender's URL must look like https://trimaran-extender:2021, not {self.url[:80]!r}")
        if self.is_secure and not self.ca_file:
            raise ValueError("an https URL needs --ca-file: without it kube-scheduler does not verify the certificate")
        if not self.is_secure and (self.ca_file or self.certificate):
            raise ValueError("--ca-file and --certificate need an https URL")
        if not 1 <= self.timeout_ms <= MAX_TIMEOUT_SECONDS * 1000:
            raise ValueError(f"the timeout must be 1 to {MAX_TIMEOUT_SECONDS * 1000:.0f} ms, not {self.timeout_ms}")

    @property
    def is_secure(self) -> bool:
        """True for an https URL."""
        return self.url.startswith("https://")

    def config_entry(self) -> dict[str, Any]:
        """Return the entry of ``extenders`` in the KubeSchedulerConfiguration."""
        entry: dict[str, Any] = {
            "urlPrefix": self.url.rstrip("/"),
            "prioritizeVerb": _PRIORITIZE,
            "weight": 1,
            "httpTimeout": f"{self.timeout_ms}ms",
            "nodeCacheCapable": True,
            "ignorable": True,
        }
        if self.filters:
            entry |= {"filterVerb": _FILTER, "preemptVerb": _PREEMPT}
        if self.is_secure:
            files = {"caFile": self.ca_file, "certFile": self.certificate, "keyFile": self.key}
            entry |= {"enableHTTPS": True, "tlsConfig": {name: file for name, file in files.items() if file}}
        return entry


def render_config(
    document: Mapping[str, Any],
    endpoint: ExtenderEndpoint,
    kubernetes_version: str = LATEST_VERSION,
    allow: Collection[str] | None = (),
) -> dict[str, Any]:
    """Return the configuration for a stock kube-scheduler.

    Args:
        document: a parsed KubeSchedulerConfiguration with trimaran's plugins.
        endpoint: address and options of the extender.
        kubernetes_version: version of kube-scheduler, which decides on the plugins that score by default.
        allow: names of plugins that this kube-scheduler has in addition to those of Kubernetes; None allows all names.

    Raises:
        ValueError: the document is not valid, has no plugin for the extender, enables a plugin that kube-scheduler does
            not have, or is itself an output of this function; the message says where.
    """
    kubernetes_version = known_version(kubernetes_version)
    configuration = Profiles.read(document, allow=allow, kubernetes_version=kubernetes_version).configuration
    stock = in_tree_plugins(kubernetes_version)
    if allow is not None and (missing := sorted(configuration.enabled - our_plugins() - stock - set(allow))):
        raise ValueError(
            f"profiles: a stock kube-scheduler has no plugin {missing[0]} and does not start; if yours has it, add "
            f"--allow {missing[0]}"
        )
    if document["apiVersion"] not in _READABLE:
        raise ValueError(
            f"apiVersion: kube-scheduler no longer supports {document['apiVersion']}; rewrite the file as {_LATEST}"
        )
    rendered: dict[str, Any] = {**deepcopy(dict(document)), "apiVersion": _LATEST}
    for number, profile in enumerate(rendered["profiles"]):
        _remove_our_plugins(profile, kubernetes_version)
        _scale_weights(profile, f"profiles[{number}]", kubernetes_version)
    others = _scaled_extenders(rendered, endpoint.url)
    if len(others) < len(rendered.get("extenders") or ()) and _is_scaled(configuration):
        raise ValueError(
            f"extenders: the file already calls {endpoint.url}, and all its weights are multiples of {ANSWER_FACTOR}: "
            "convert the original file, not the result of a conversion"
        )
    if endpoint.filters:  # otherwise kube-scheduler sends a sample of the nodes, which may all be over their limits
        rendered["percentageOfNodesToScore"] = 100
        for profile in rendered["profiles"]:
            profile.pop("percentageOfNodesToScore", None)
    rendered["extenders"] = [*others, endpoint.config_entry()]
    return rendered


def in_tree_by_scheduler(profiles: Profiles, kubernetes_version: str = LATEST_VERSION) -> Mapping[str, InTreePlugins]:
    """Return the in-tree score plugins of kube-scheduler that run in addition to the extender, by scheduler name.

    These are the plugins that :func:`render_config` leaves in the file, with the rules of the version.

    Raises:
        ValueError: the file is not valid for this version of kube-scheduler.
    """
    if profiles.document["apiVersion"] not in _READABLE:
        return {}
    rendered = render_config(profiles.document, ExtenderEndpoint("http://127.0.0.1"), kubernetes_version, allow=None)
    configuration = read_scheduler_file(rendered, kubernetes_version=kubernetes_version, allow=None)
    return {
        profile.scheduler_name: InTreePlugins(
            without_pod_rules(profile), configuration.weights[profile.scheduler_name].get("TaintToleration", 0)
        )
        for profile in configuration.profiles
    }


def disabled_defaults(document: Mapping[str, Any], kubernetes_version: str = LATEST_VERSION) -> Iterator[str]:
    """Yield a line for each profile that disables default score plugins, with their names.

    The Go plugins' documentation advises to disable them. Such plugins do not score pods in shadow either.

    Args:
        document: a valid KubeSchedulerConfiguration with trimaran's plugins.
        kubernetes_version: version of kube-scheduler.
    """
    defaults = default_score_weights(known_version(kubernetes_version))
    for number, profile in enumerate(document["profiles"]):
        stock = deepcopy(profile)
        _remove_our_plugins(stock, kubernetes_version)
        weights = _score_weights(stock, kubernetes_version)
        if missing := [name for name in defaults if name not in weights]:
            yield f"profiles[{number}].plugins.score.disabled: {', '.join(missing)}"


def validate_config(
    document: Mapping[str, Any], url: str = "", allow: Collection[str] = (), kubernetes_version: str = LATEST_VERSION
) -> Iterator[str]:
    """Yield the problems of a KubeSchedulerConfiguration for a stock kube-scheduler with the extender.

    Args:
        document: the parsed file.
        url: URL of the extender to check, if the file has several; by default all with a ``prioritizeVerb``.
        allow: names of plugins that this kube-scheduler has in addition to those of Kubernetes.
        kubernetes_version: version of kube-scheduler, which decides on the plugins that score by default.

    Raises:
        ValueError: the document is not valid.
    """
    configuration = read_scheduler_file(document, kubernetes_version=kubernetes_version, allow=allow)
    ours = our_plugins()
    for number, profile in enumerate(_listed(document, "profiles")):
        yield from _problems_of_profile(f"profiles[{number}]", profile)
    for number, by_name in enumerate(configuration.weights.values()):
        for name, weight in by_name.items():
            if weight % ANSWER_FACTOR and name not in ours:
                yield (
                    f"profiles[{number}].plugins: {name} has weight {weight}, not a multiple of {ANSWER_FACTOR}: "
                    f"kube-scheduler multiplies the extender's scores by {ANSWER_FACTOR}, so all weights must be "
                    "written times 10"
                )
    matching = 0
    for number, extender in enumerate(_listed(document, "extenders")):
        if extender.get("prioritizeVerb") and (not url or url_of(extender) == url.rstrip("/")):
            matching += 1
            yield from _problems_of_extender(f"extenders[{number}]", extender)
            if extender.get("filterVerb") and not _scores_all_nodes(document):
                yield (
                    "percentageOfNodesToScore: must be 100 with a filterVerb: otherwise only a sample of the nodes is "
                    "sent, and all nodes of the sample may be over their limits"
                )
    if not matching:
        yield f"extenders: no extender has a prioritizeVerb{f' and the urlPrefix {url}' if url else ''}"


def _remove_our_plugins(profile: dict[str, Any], kubernetes_version: str) -> None:
    """Remove the plugins that a stock kube-scheduler does not have, and their arguments."""
    ours, plugins = our_plugins(), profile.get("plugins") or {}
    for point in plugins:
        if isinstance(plugins[point], dict) and plugins[point].get("enabled"):
            plugins[point]["enabled"] = [each for each in _enabled(plugins, point) if each["name"] not in ours]
    if profile.get("pluginConfig"):
        profile["pluginConfig"] = [each for each in profile["pluginConfig"] if each["name"] not in ours]
    # The file disables all default score plugins in favor of ours: enable them, or nothing would score.
    if not _score_weights(profile, kubernetes_version):
        plugins["score"] = {}


def _scale_weights(profile: dict[str, Any], where: str, kubernetes_version: str) -> None:
    """Multiply the weights of all score plugins of a profile by 10, and name the default plugins with their weights."""
    weights, defaults = _score_weights(profile, kubernetes_version), default_score_weights(kubernetes_version)
    plugins = profile["plugins"] = profile.get("plugins") or {}
    named = {each["name"] for each in _enabled(plugins, "score")}
    for name, weight in weights.items():
        if weight > _MAX_WEIGHT // ANSWER_FACTOR:
            raise ValueError(
                f"{where}.plugins: {name} has weight {weight}, which the conversion multiplies by {ANSWER_FACTOR}: it "
                f"must be at most {_MAX_WEIGHT // ANSWER_FACTOR}"
            )
    plugins["score"] = {
        "enabled": [
            {"name": name, "weight": ANSWER_FACTOR * weight}
            for name, weight in weights.items()
            if name in defaults or name in named
        ]
    }
    available = dict.fromkeys([*defaults, *(each["name"] for each in _enabled(plugins, "multiPoint"))])
    if removed := [{"name": name} for name in available if name not in weights]:
        plugins["score"]["disabled"] = removed
    # A user's own plugin at multiPoint may not be a score plugin: scale its weight there, do not list it at score.
    for each in _enabled(plugins, "multiPoint"):
        if each["name"] in weights and each["name"] not in defaults and each["name"] not in named:
            each["weight"] = ANSWER_FACTOR * weights[each["name"]]


def _scaled_extenders(document: Mapping[str, Any], url: str) -> list[dict[str, Any]]:
    """Return the file's extenders except the one at ``url``; multiply the weights of those that score by 10."""
    extenders = document.get("extenders")
    if extenders is None:
        return []
    if not isinstance(extenders, list) or not all(isinstance(each, dict) for each in extenders):
        raise ValueError("extenders: must be a list of mappings")
    others = []
    for number, extender in enumerate(extenders):
        if url_of(extender) == url.rstrip("/"):
            continue
        others.append(extender)
        if extender.get("prioritizeVerb"):
            weight = extender.get("weight")
            if type(weight) is not int or not 1 <= weight <= _MAX_WEIGHT // ANSWER_FACTOR:
                raise ValueError(
                    f"extenders[{number}].weight: must be 1 to {_MAX_WEIGHT // ANSWER_FACTOR}, got {str(weight)[:80]!r}"
                )
            extender["weight"] = ANSWER_FACTOR * weight
    return others


def _is_scaled(configuration: SchedulerConfiguration) -> bool:
    """Return whether the weights of all in-tree plugins are multiples of 10, as in a rendered file."""
    ours = our_plugins()
    weights = [by_name[name] for by_name in configuration.weights.values() for name in by_name if name not in ours]
    return bool(weights) and not any(weight % ANSWER_FACTOR for weight in weights)


def _scores_all_nodes(document: Mapping[str, Any]) -> bool:
    every = document.get("percentageOfNodesToScore")
    by_profile = (profile.get("percentageOfNodesToScore") for profile in _listed(document, "profiles") or [{}])
    return all((every if percentage is None else percentage) == 100 for percentage in by_profile)


def url_of(extender: Mapping[str, Any]) -> str:
    """Return the URL of an extender in a KubeSchedulerConfiguration, without a final slash; "" if it has none."""
    return str(extender.get("urlPrefix") or "").rstrip("/")


def _score_weights(profile: Mapping[str, Any], kubernetes_version: str) -> Mapping[str, int]:
    """Return the weights of a profile's score plugins, by name; the profile is read by the latest API version."""
    document = {"apiVersion": _LATEST, "kind": "KubeSchedulerConfiguration", "profiles": [profile]}
    (weights,) = read_scheduler_file(document, kubernetes_version=kubernetes_version, allow=None).weights.values()
    return weights


def _problems_of_profile(where: str, profile: Mapping[str, Any]) -> Iterator[str]:
    ours, plugins = our_plugins(), profile.get("plugins") or {}
    for point in plugins:
        for each in _enabled(plugins, point):
            if each.get("name") in ours:
                yield f"{where}.plugins.{point}: a stock kube-scheduler has no plugin {each['name']} and will not start"
    for each in profile.get("pluginConfig") or []:
        if each.get("name") in ours:
            yield f"{where}.pluginConfig: a stock kube-scheduler has no plugin {each['name']} and will not start"
    disabled = {each.get("name") for each in (plugins.get("multiPoint") or {}).get("disabled") or []}
    enabled = {each.get("name") for each in _enabled(plugins, "multiPoint")}
    if disabled & {"*", "NodeResourcesFit"} and "NodeResourcesFit" not in enabled:
        yield (
            f"{where}.plugins.multiPoint: NodeResourcesFit is disabled at all extension points: pods are placed where "
            "they do not fit; disable it at score only"
        )


def _problems_of_extender(where: str, extender: Mapping[str, Any]) -> Iterator[str]:
    url = str(extender.get("urlPrefix", ""))
    tls = extender.get("tlsConfig") or {}
    secure = url.startswith("https://")
    if extender.get("prioritizeVerb") != _PRIORITIZE:
        yield f"{where}.prioritizeVerb = {quoted(extender.get('prioritizeVerb'))}: the extender serves {_PRIORITIZE!r}"
    seconds = duration_seconds(extender.get("httpTimeout"))
    if seconds is None or not 0 < seconds <= MAX_TIMEOUT_SECONDS:
        yield (
            f"{where}.httpTimeout = {quoted(extender.get('httpTimeout'))}: must be at most 500ms (the default is 5s), "
            "because every pod waits for that long while the extender is down"
        )
    if extender.get("filterVerb"):
        yield from _problems_of_filter(where, extender)
    for name in ("ignorable", "nodeCacheCapable"):
        if extender.get(name) is not True:
            yield f"{where}.{name}: must be true"
    if extender.get("managedResources"):
        yield f"{where}.managedResources: must be empty: pods without these resources would not be scored"
    if bool(extender.get("enableHTTPS")) != secure:
        yield f"{where}.enableHTTPS: must be true with an https urlPrefix, and false without"
    if secure and (tls.get("insecure") or not (tls.get("caFile") or tls.get("caData"))):
        yield f"{where}.tlsConfig: without caFile or caData the extender's certificate is not verified"
    weight = extender.get("weight")
    if not isinstance(weight, int) or weight < 1:
        yield f"{where}.weight = {quoted(weight)}: must be at least 1"


def _problems_of_filter(where: str, extender: Mapping[str, Any]) -> Iterator[str]:
    if extender["filterVerb"] != _FILTER:
        yield f"{where}.filterVerb = {quoted(extender['filterVerb'])}: the extender serves {_FILTER!r}"
    if extender.get("preemptVerb") != _PREEMPT:
        yield f"{where}.preemptVerb: must be {_PREEMPT!r} with a filterVerb: otherwise pods are evicted from hot nodes"


def _enabled(plugins: Mapping[str, Any], point: str) -> Sequence[dict[str, Any]]:
    plugin_set = plugins.get(point)
    return (plugin_set.get("enabled") or []) if isinstance(plugin_set, dict) else []


def _listed(document: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    listed = document.get(key)
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def duration_seconds(text: object) -> float | None:
    """Return a duration in Go's notation, such as ``1m30s``, in seconds; None if the text is not a valid duration."""
    parts = _GO_DURATION.findall(text) if isinstance(text, str) else []
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
