"""The KubeSchedulerConfiguration that makes a stock kube-scheduler ask the extender, from one with plugins of ours.

Our plugins leave the file, and the extender comes in. Weights are as :mod:`trimaran.extender.profiles` says, so that
plugins
weigh against each other what the file says. NodeResourcesFit and NodeResourcesBalancedAllocation keep scoring, at
weight 1 where the file does not name them: they decide between nodes that are equal by load, and alone when the
extender is dead.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from scoring import read_configuration
from trimaran.extender.placement_predictor import InTree
from trimaran.extender.profiles import OURS, SCORE_FACTOR, Profiles

SAFETY_NET = ("NodeResourcesFit", "NodeResourcesBalancedAllocation")
MAX_TIMEOUT_SECONDS = 0.5
_PRIORITIZE, _FILTER, _PREEMPT = "prioritize", "filter", "preempt"
_LATEST = "kubescheduler.config.k8s.io/v1"
_READABLE = frozenset({_LATEST, f"{_LATEST}beta3"})  # older ones have plugins and defaults that are gone
_GO_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Way:
    """How kube-scheduler reaches the extender.

    Attributes:
        url: such as ``https://trimaran-extender.trimaran.svc:2021``.
        ca_file: the authority of its certificate, as kube-scheduler sees the file; needed where the URL is HTTPS.
        certificate, key: the client certificate that the extender asks for, if it does.
        timeout_ms: after which kube-scheduler goes on without, at most 500.
        filters: whether it is asked to filter too.

    Raises:
        ValueError: they do not go together; the message says how they would.
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
            raise ValueError(f"the extender's URL looks like https://trimaran-extender:2021, not {self.url[:80]!r}")
        if self.is_secure and not self.ca_file:
            raise ValueError("an https URL needs --ca-file: without it kube-scheduler verifies nothing")
        if not self.is_secure and (self.ca_file or self.certificate):
            raise ValueError("--ca-file and --certificate are of no use without an https URL")
        if not 1 <= self.timeout_ms <= MAX_TIMEOUT_SECONDS * 1000:
            raise ValueError(f"the timeout is 1 to {MAX_TIMEOUT_SECONDS * 1000:.0f} ms, not {self.timeout_ms}")

    @property
    def is_secure(self) -> bool:
        """Whether it is HTTPS."""
        return self.url.startswith("https://")

    def extender(self, weight: int) -> dict[str, Any]:
        """Return the entry of ``extenders``."""
        entry: dict[str, Any] = {
            "urlPrefix": self.url.rstrip("/"),
            "prioritizeVerb": _PRIORITIZE,
            "weight": weight,
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


def written(document: Mapping[str, Any], way: Way, *, safety_net: bool = True) -> dict[str, Any]:
    """Return the file for a stock kube-scheduler.

    Args:
        document: a parsed KubeSchedulerConfiguration with plugins of ours.
        way: to the extender.
        safety_net: keep the plugins of :data:`SAFETY_NET` scoring where the file does not name them.

    Raises:
        ValueError: the file cannot be used, or has nothing for an extender; the message says where.
    """
    profiles = Profiles.read(document)
    if document["apiVersion"] not in _READABLE:
        raise ValueError(
            f"apiVersion: kube-scheduler no longer reads {document['apiVersion']}; rewrite it as {_LATEST}"
        )
    made: dict[str, Any] = {**deepcopy(dict(document)), "apiVersion": _LATEST}
    made["profiles"] = [
        _profile(entry, profiles, name, safety_net=safety_net)
        for entry, name in zip(
            made["profiles"], (profile.scheduler_name for profile in profiles.configuration.profiles), strict=True
        )
    ]
    others = [each for each in made.get("extenders") or [] if each.get("urlPrefix") != way.url.rstrip("/")]
    if way.filters:  # else it asks about a sample, all of which may be over their limits
        made["percentageOfNodesToScore"] = 100
    made["extenders"] = [*others, way.extender(profiles.weight)]
    return made


def in_tree(profiles: Profiles) -> Mapping[str, InTree]:
    """Return what kube-scheduler adds by itself to the extender's scores, by the scheduler's name.

    It is what :func:`written` leaves it with by default.
    """
    if profiles.document["apiVersion"] not in _READABLE:
        return {}
    made = written(profiles.document, Way("http://127.0.0.1"))
    read = read_configuration(made)
    return {
        profile.scheduler_name: InTree(profile, read.weights[profile.scheduler_name].get("TaintToleration", 0))
        for profile in read.profiles
    }


def problems(document: Mapping[str, Any], url: str = "") -> Iterator[str]:
    """Yield what is wrong with a file that a stock kube-scheduler is to ask the extender by.

    Args:
        document: the parsed file.
        url: of our extender, where there are several; by default the ones that prioritize.
    """
    for number, profile in enumerate(_listed(document, "profiles")):
        yield from _problems_of_profile(f"profiles[{number}]", profile)
    found = 0
    for number, extender in enumerate(_listed(document, "extenders")):
        if extender.get("prioritizeVerb") and (not url or extender.get("urlPrefix", "").rstrip("/") == url.rstrip("/")):
            found += 1
            yield from _problems_of_extender(f"extenders[{number}]", extender)
            if extender.get("filterVerb") and document.get("percentageOfNodesToScore") != 100:
                yield (
                    "percentageOfNodesToScore: must be 100 with a filterVerb: else a sample of the nodes is asked "
                    "about, and all of the sample may be over their limits"
                )
    if not found:
        yield f"extenders: none prioritizes{f' at {url}' if url else ''}"


def _profile(entry: dict[str, Any], profiles: Profiles, name: str, *, safety_net: bool) -> dict[str, Any]:
    ours = profiles.by_scheduler.get(name)
    plugins = entry.get("plugins") or {}
    named = {each["name"] for point in ("score", "multiPoint") for each in _enabled(plugins, point)}
    factor = SCORE_FACTOR * profiles.weight // ours.weight if ours else 1
    weights = {
        plugin: factor * weight for plugin, weight in profiles.configuration.weights[name].items() if plugin not in OURS
    }
    if ours and safety_net:
        weights |= dict.fromkeys((plugin for plugin in SAFETY_NET if plugin not in named), 1)
    elif ours:
        weights = {plugin: weight for plugin, weight in weights.items() if plugin not in SAFETY_NET or plugin in named}
    for point in plugins:
        if isinstance(plugins[point], dict) and plugins[point].get("enabled"):
            plugins[point]["enabled"] = [each for each in _enabled(plugins, point) if each["name"] not in OURS]
    if ours:
        enabled = [{"name": plugin, "weight": weight} for plugin, weight in weights.items()]
        entry["plugins"] = {**plugins, "score": {"disabled": [{"name": "*"}], "enabled": enabled}}
    if entry.get("pluginConfig"):
        entry["pluginConfig"] = [each for each in entry["pluginConfig"] if each["name"] not in OURS]
    return entry


def _problems_of_profile(where: str, profile: Mapping[str, Any]) -> Iterator[str]:
    plugins = profile.get("plugins") or {}
    for point in plugins:
        for each in _enabled(plugins, point):
            if each.get("name") in OURS:
                yield f"{where}.plugins.{point}: a stock kube-scheduler has no plugin {each['name']}: it will not start"
    for each in profile.get("pluginConfig") or []:
        if each.get("name") in OURS:
            yield f"{where}.pluginConfig: a stock kube-scheduler has no plugin {each['name']}: it will not start"
    disabled = {each.get("name") for each in (plugins.get("multiPoint") or {}).get("disabled") or []}
    enabled = {each.get("name") for each in _enabled(plugins, "multiPoint")}
    if disabled & {"*", "NodeResourcesFit"} and "NodeResourcesFit" not in enabled:
        yield (
            f"{where}.plugins.multiPoint: NodeResourcesFit is disabled at all points: pods are placed where they do "
            "not fit; disable it at score alone"
        )


def _problems_of_extender(where: str, extender: Mapping[str, Any]) -> Iterator[str]:
    url = str(extender.get("urlPrefix", ""))
    tls = extender.get("tlsConfig") or {}
    secure = url.startswith("https://")
    if extender.get("prioritizeVerb") != _PRIORITIZE:
        yield f"{where}.prioritizeVerb = {extender.get('prioritizeVerb')!r}: the extender answers {_PRIORITIZE!r}"
    seconds = _seconds(extender.get("httpTimeout"))
    if seconds is None or not 0 < seconds <= MAX_TIMEOUT_SECONDS:
        yield (
            f"{where}.httpTimeout = {extender.get('httpTimeout')!r}: without an extender every pod waits for it; at "
            "most 500ms (its default is 5s)"
        )
    if extender.get("filterVerb"):
        yield from _problems_of_filter(where, extender)
    for name in ("ignorable", "nodeCacheCapable"):
        if extender.get(name) is not True:
            yield f"{where}.{name}: must be true"
    if extender.get("managedResources"):
        yield f"{where}.managedResources: pods that request none of them would not be scored"
    if bool(extender.get("enableHTTPS")) != secure:
        yield f"{where}.enableHTTPS: must be true with an https urlPrefix, and only then"
    if secure and (tls.get("insecure") or not (tls.get("caFile") or tls.get("caData"))):
        yield f"{where}.tlsConfig: without caFile or caData the extender's certificate is not verified"
    weight = extender.get("weight")
    if not isinstance(weight, int) or weight < 1:
        yield f"{where}.weight = {weight!r}: must be at least 1"


def _problems_of_filter(where: str, extender: Mapping[str, Any]) -> Iterator[str]:
    if extender["filterVerb"] != _FILTER:
        yield f"{where}.filterVerb = {extender['filterVerb']!r}: the extender answers {_FILTER!r}"
    if extender.get("preemptVerb") != _PREEMPT:
        yield f"{where}.preemptVerb: must be {_PREEMPT!r} with a filterVerb: pods would be killed for hot nodes"


def _enabled(plugins: Mapping[str, Any], point: str) -> Sequence[Mapping[str, Any]]:
    plugin_set = plugins.get(point)
    return (plugin_set.get("enabled") or []) if isinstance(plugin_set, dict) else []


def _listed(document: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    listed = document.get(key)
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _seconds(text: object) -> float | None:
    """Read a duration as Go writes it; None when it is none."""
    found = _GO_DURATION.findall(text) if isinstance(text, str) else []
    if not found or "".join(number + unit for number, unit in found) != text:
        return None
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in found)
