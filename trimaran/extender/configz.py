"""Comparison of a KubeSchedulerConfiguration with the configuration of a running kube-scheduler, from ``/configz``.

Only the parts that decide on scores are compared: the weights of the plugins that score, and the extenders.
Source: k8s.io/component-base/configz; kube-scheduler reports its configuration with all defaults.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

import orjson

from scoring.kubernetes_version import LATEST_VERSION, default_score_weights, known_version
from trimaran.extender.kube_scheduler import duration_seconds, url_of
from trimaran.plugins import read_scheduler_file

_KEY = "componentconfig"
_KIND = "KubeSchedulerConfiguration"
_ABSENT = "no such field"
_FIRST_WORD = re.compile(r"^(?:[A-Z]+(?=[A-Z][a-z])|[A-Z])")  # of a Go name: URL in URLPrefix, Enable in EnableHTTPS


def read_configz(body: bytes) -> Mapping[str, Any]:
    """Return the KubeSchedulerConfiguration in the response of ``/configz``.

    Raises:
        ValueError: the body is not such a response.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"is not the JSON of /configz: {error}") from None
    running = document.get(_KEY) if isinstance(document, dict) else None
    if isinstance(running, dict) and "Profiles" in running:  # up to Kubernetes 1.35
        running = {**_with_json_names(running), "kind": _KIND}
    if not isinstance(running, dict) or running.get("kind") != _KIND:
        raise ValueError(f"is not the JSON of kube-scheduler's /configz: no {_KIND} in {_KEY}")
    return running


def differences(
    document: Mapping[str, Any],
    running: Mapping[str, Any],
    kubernetes_version: str = LATEST_VERSION,
    allow: Collection[str] = (),
) -> Iterator[str]:
    """Yield the differences between a file and a running kube-scheduler.

    Args:
        document: the parsed file, for a stock kube-scheduler.
        running: configuration from :func:`read_configz`.
        kubernetes_version: version of kube-scheduler, which decides on the plugins that score by default.
        allow: names of plugins that this kube-scheduler has in addition to those of Kubernetes.

    Raises:
        ValueError: one of the two is not a valid configuration.
    """
    read = partial(read_scheduler_file, kubernetes_version=kubernetes_version, allow=allow)
    expected, reported = read(document).weights, read(_without_defaults(running)).weights
    scoring = default_score_weights(known_version(kubernetes_version)).keys()
    for scheduler, weights in expected.items():
        if scheduler not in reported:
            yield f"profile {scheduler}: the running kube-scheduler has no such profile"
            continue
        for plugin in dict.fromkeys((*weights, *reported[scheduler])):
            # Ignore plugins at multiPoint that do not score: the file need not name them.
            if plugin not in scoring and plugin not in weights:
                continue
            ours, theirs = weights.get(plugin), reported[scheduler].get(plugin)
            if ours != theirs:
                yield f"profile {scheduler}: {plugin} has {_weight(ours)} in the file, {_weight(theirs)} when running"
    for scheduler in reported:
        if scheduler not in expected:
            yield f"profile {scheduler}: only the running kube-scheduler has it"
    yield from _extender_differences(document, running)


def _extender_differences(document: Mapping[str, Any], running: Mapping[str, Any]) -> Iterator[str]:
    running_extenders = {url_of(each): each for each in running.get("extenders") or []}
    extenders = {url_of(each): each for each in document.get("extenders") or []}
    for url, extender in extenders.items():
        if url not in running_extenders:
            yield f"extender {url}: the running kube-scheduler has no such extender"
            continue
        for key in dict.fromkeys((*extender, *running_extenders[url])):
            value, running_value = (each.get(key) or _ABSENT for each in (extender, running_extenders[url]))
            if not _equal(key, value, running_value) and key != "urlPrefix":
                yield f"extender {url}: {key} is {value} in the file, {running_value} when running"
    for url in running_extenders:
        if url not in extenders:
            yield f"extender {url}: only the running kube-scheduler has it"


def _equal(key: str, value: Any, running_value: Any) -> bool:
    """Return whether two values of an extender's field are equal; durations may be written in different units."""
    if key != "httpTimeout":
        return bool(value == running_value)
    return duration_seconds(value) == duration_seconds(running_value)


def _with_json_names(value: Any) -> Any:
    """Convert Go's field names, such as URLPrefix, to those of a configuration file, and drop empty fields."""
    if isinstance(value, list):
        return [_with_json_names(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        _FIRST_WORD.sub(lambda word: word[0].lower(), name): _with_json_names(field)
        for name, field in value.items()
        if field
    }


def _without_defaults(running: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with the default plugins disabled: /configz already lists them among the enabled ones.

    Arguments of plugins are removed, because weights do not depend on them.
    """
    profiles = []
    for profile in running.get("profiles") or []:
        plugins = profile.get("plugins") or {}
        multi_point = {**(plugins.get("multiPoint") or {}), "disabled": [{"name": "*"}]}
        profiles.append({**profile, "plugins": {**plugins, "multiPoint": multi_point}, "pluginConfig": []})
    return {**running, "profiles": profiles}


def _weight(weight: int | None) -> str:
    return "weight 0" if weight is None else f"weight {weight}"
