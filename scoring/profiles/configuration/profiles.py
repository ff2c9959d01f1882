"""Profiles from a KubeSchedulerConfiguration, v1beta1 to v1, with a note on the effect of every key.

The plugins that score, and their weights, are the defaults of the file's version, merged with ``plugins.score`` and
``plugins.multiPoint`` of the profile as kube-scheduler merges them. Their arguments are read from ``pluginConfig``.
Source: k8s.io/kubernetes/pkg/scheduler/apis/config and ``expandMultiPointPlugins`` of kube-scheduler's framework
runtime.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from runtime.errors import quoted
from scoring.kubernetes_version import LATEST_VERSION, default_score_weights, has_score, in_tree_plugins, known_version
from scoring.plugins.base import Plugin, points_of
from scoring.profiles.configuration.fields import ConfigNote, FieldReader, UnknownPlugin, did_you_mean, is_list
from scoring.profiles.configuration.plugins import RENAMED, UPSTREAM_PLUGINS, plugin_from_config, plugin_names
from scoring.profiles.profile import Profile
from scoring.profiles.scores import Weight, WeightedPlugin

_GROUP = "kubescheduler.config.k8s.io/"
_LATEST = "v1"

# Plugins that scored by default in old versions of the file, with their weights.
_OLD_WEIGHTS: Mapping[str, Mapping[str, int]] = {
    "v1beta1": {
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
        "InterPodAffinity": 1,
        "NodeResourcesLeastAllocated": 1,
        "NodeAffinity": 1,
        "NodePreferAvoidPods": 10000,
        "PodTopologySpread": 2,
        "TaintToleration": 1,
    },
    "v1beta2": {
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
        "InterPodAffinity": 1,
        "NodeResourcesFit": 1,
        "NodeAffinity": 1,
        "PodTopologySpread": 2,
        "TaintToleration": 1,
    },
}
_FILE_VERSIONS = (*_OLD_WEIGHTS, "v1beta3", _LATEST)
# Plugins that only the kube-schedulers that read v1beta1 and v1beta2 had.
_OLD_PLUGINS = frozenset({
    "AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits", "NodeLabel", "NodePreferAvoidPods", "SelectorSpread",
    "ServiceAffinity",
})  # fmt: skip
_NO_SCORE = "not about scores"
_FOR_SCHEDULER = "not about scores; trimaran scheduler reads it"
_SAMPLED = "every node is scored; trimaran scheduler reads it"
_OTHER_KEYS = {
    **dict.fromkeys((
        "clientConnection", "delayCacheUntilActive", "enableContentionProfiling", "enableProfiling", "extenders",
        "healthzBindAddress", "leaderElection", "metricsBindAddress", "parallelism",
    ), _NO_SCORE),
    **dict.fromkeys(("podInitialBackoffSeconds", "podMaxBackoffSeconds"), _FOR_SCHEDULER),
}  # fmt: skip
_OTHER_POINTS = {
    **dict.fromkeys(("placementGenerate", "placementScore", "podGroupPostFilter", "preScore"), _NO_SCORE),
    **dict.fromkeys((
        "bind", "filter", "permit", "postBind", "postFilter", "preBind", "preEnqueue", "preFilter", "queueSort",
        "reserve",
    ), _FOR_SCHEDULER),
}  # fmt: skip
_OTHER_ARGUMENTS = frozenset({"Coscheduling", "DefaultPreemption", "VolumeBinding"})  # read by trimaran scheduler


@dataclass(frozen=True)
class SchedulerConfiguration:
    """Score profiles of a KubeSchedulerConfiguration.

    Attributes:
        profiles: profiles, in the file's order.
        notes: note on the effect of every key, in the order of reading. ``trimaran config check`` prints the notes.
        weights: weights by scheduler name and plugin name, of all plugins that score, including plugins that this
            project does not implement.
        enabled: names of the plugins that the file enables, at all extension points.
    """

    profiles: tuple[Profile, ...]
    notes: tuple[ConfigNote, ...]
    weights: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    enabled: frozenset[str] = frozenset()

    def profile(self, scheduler_name: str | None = None) -> Profile:
        """Return the profile for a scheduler name; without a name, the only profile.

        Raises:
            KeyError: no profile has this name.
            ValueError: there are several profiles, and no name was given.
        """
        names = [profile.scheduler_name for profile in self.profiles]
        if scheduler_name is None:
            if len(names) > 1:
                raise ValueError(
                    f"there are several profiles ({', '.join(names)}): select one with --scheduler, or in Python with "
                    "scheduler_name"
                )
            return self.profiles[0]
        if scheduler_name not in names:
            raise KeyError(f"no profile for scheduler {scheduler_name!r}; known schedulers: {', '.join(names)}")
        return self.profiles[names.index(scheduler_name)]


def read_configuration(
    configuration: Mapping[str, Any],
    *,
    kubernetes_version: str = LATEST_VERSION,
    allow: Collection[str] | None = (),
    plugins: Collection[type[Plugin]] = (),
) -> SchedulerConfiguration:
    """Read the profiles of a parsed KubeSchedulerConfiguration.

    Args:
        configuration: the parsed file, of any version from v1beta1 to v1.
        kubernetes_version: Kubernetes version whose rules of scoring apply, such as ``1.36``; by default the newest
            known version.
        allow: names of plugins that may stand in the file although this project does not know them, such as plugins
            that are compiled into the user's own kube-scheduler; None allows all names.
        plugins: plugins from other packages, such as :func:`trimaran.plugins.installed_plugins` returns. The arguments
            of a score plugin are the fields of its dataclass; the key of ``target_load`` is ``targetLoad``.

    Raises:
        ValueError: the file is not a KubeSchedulerConfiguration of a known version, a value is invalid, or the
            Kubernetes version or the name of a plugin is unknown (:class:`UnknownPlugin`). For an invalid value the
            message starts with the path of the key.
    """
    rules = known_version(kubernetes_version)
    notes: list[ConfigNote] = []
    reader = FieldReader("KubeSchedulerConfiguration", configuration, notes)
    version = _version(reader)
    listed = reader.raw("profiles")
    if listed is None or listed == []:
        listed = [{}]
    if not is_list(listed):
        raise reader.error("profiles", f"must be a list of profiles, got {quoted(listed)}")
    reader.ignored("percentageOfNodesToScore", _SAMPLED)
    for key, why in _OTHER_KEYS.items():
        reader.ignored(key, why)
    reader.finish()
    names_of_plugins = (
        None
        if allow is None
        else _PluginNames(version, rules, {*plugin_names(plugins), *(each.name for each in plugins), *allow})
    )
    readers = [
        _ProfileReader(FieldReader(f"profiles[{i}]", entry, notes), version, rules, names_of_plugins, plugins)
        for i, entry in enumerate(listed)
    ]
    profiles = tuple(profile_reader.read() for profile_reader in readers)
    weights = {
        profile.scheduler_name: profile_reader.weights
        for profile, profile_reader in zip(profiles, readers, strict=True)
    }
    names = [profile.scheduler_name for profile in profiles]
    for name in names:
        if names.count(name) > 1:
            raise reader.error("profiles", f"two profiles are for scheduler {quoted(name)}: change one schedulerName")
    enabled = frozenset(name for profile_reader in readers for name in profile_reader.enabled)
    return SchedulerConfiguration(profiles, tuple(notes), weights, enabled)


def _version(reader: FieldReader) -> str:
    if reader.raw("kind") != "KubeSchedulerConfiguration":
        raise reader.error("kind", f"must be KubeSchedulerConfiguration, got {quoted(reader.raw('kind'))}")
    reader.honored("kind", None)
    written = reader.raw("apiVersion")
    version = str(written).removeprefix(_GROUP)
    if version not in _FILE_VERSIONS or written != _GROUP + version:
        known = ", ".join(_GROUP + name for name in _FILE_VERSIONS)
        raise reader.error("apiVersion", f"must be one of {known}; got {quoted(written)}")
    if version == _LATEST:
        reader.honored("apiVersion", None)
    else:
        reader.changed("apiVersion", None, f"kube-scheduler no longer reads {version}; its defaults are used")
    return version


class _PluginNames:
    """Names of plugins that may stand in a file.

    Args:
        version: version of the file.
        kubernetes_version: version of kube-scheduler.
        allow: further names that are accepted.
    """

    def __init__(self, version: str, kubernetes_version: str, allow: Collection[str]) -> None:
        old = _OLD_PLUGINS if version in _OLD_WEIGHTS else frozenset()
        self._known = frozenset({*in_tree_plugins(kubernetes_version), *UPSTREAM_PLUGINS, *old, *allow})
        self._kubernetes_version = kubernetes_version

    def problem(self, name: str) -> str:
        """Return an explanation if the name is not known; "" if it is."""
        if name in self._known:
            return ""
        if name in in_tree_plugins(LATEST_VERSION):
            return f"kube-scheduler {self._kubernetes_version} has no plugin {name}"
        return f"no plugin named {quoted(name)} is known{did_you_mean(name, self._known)}"


class _ProfileReader:
    """Reader of one profile of a KubeSchedulerConfiguration."""

    def __init__(
        self,
        reader: FieldReader,
        version: str,
        kubernetes_version: str,
        names: _PluginNames | None,
        plugins: Collection[type[Plugin]],
    ) -> None:
        self.reader = reader
        self.version = version
        self.kubernetes_version = kubernetes_version
        self.names = names
        self.plugins = plugins
        self.scored = plugin_names(plugins)
        self.points = {plugin.name: points_of(plugin) for plugin in plugins}
        self.weights: Mapping[str, int] = {}
        self.enabled: set[str] = set()

    def read(self) -> Profile:
        reader = self.reader
        name = reader.raw("schedulerName")
        if name is not None:
            reader.honored("schedulerName", None)
        reader.ignored("percentageOfNodesToScore", _SAMPLED)
        weights = self.weights = self._weights()
        arguments = self._arguments(weights)
        reader.finish()
        plugins: dict[str, WeightedPlugin] = {}
        for plugin_name, weight in weights.items():
            if plugin_name not in self.scored:
                self._note("ignored", f"plugins: {plugin_name}", f"this score is not implemented; weight {weight}")
                continue
            plugin = plugin_from_config(
                plugin_name,
                arguments.get(plugin_name),
                reader.notes,
                kubernetes_version=self.kubernetes_version,
                plugins=self.plugins,
            )
            if plugin_name in RENAMED:
                new_name, strategy = RENAMED[plugin_name]
                self._note("changed", f"plugins: {plugin_name}", f"read as {new_name} with strategy {strategy}")
            plugins[plugin.name] = WeightedPlugin(plugin, weight)  # a plugin under its old name wins
        return Profile(tuple(plugins.values()), "default-scheduler" if name is None else str(name))

    def _weights(self) -> dict[str, int]:
        """Return the weights of the plugins that score, by name.

        The defaults are merged with the profile's plugin sets ``multiPoint`` and ``score``.
        """
        plugins = self.reader.nested("plugins")
        defaults = _OLD_WEIGHTS.get(self.version) or default_score_weights(self.kubernetes_version)
        if plugins is None:
            return dict(defaults)
        self.reader.honored("plugins", None)
        score_enabled, score_disabled = self._plugin_set(plugins, "score")
        multi_enabled, multi_disabled = self._plugin_set(plugins, "multiPoint")
        for point, why in _OTHER_POINTS.items():
            if plugins.raw(point) is not None:
                self._plugin_set(FieldReader(plugins.path, plugins.fields), point)  # checks the names
            plugins.ignored(point, why)
        plugins.finish()
        # multiPoint modifies the defaults; score then modifies the result and takes precedence.
        merged = {} if "*" in multi_disabled else {n: w for n, w in defaults.items() if n not in multi_disabled}
        merged.update(multi_enabled)
        remaining = {} if "*" in score_disabled else {n: w for n, w in merged.items() if n not in score_disabled}
        return {**remaining, **score_enabled}

    def _plugin_set(self, plugins: FieldReader, point: str) -> tuple[dict[str, int], set[str]]:
        plugin_set = plugins.nested(point)
        if plugin_set is None:
            return {}, set()
        plugins.honored(point, None)
        enabled: dict[str, int] = {}
        for entry in plugin_set.entries("enabled"):
            name = self._name(entry)
            if name in enabled:
                raise entry.error("name", f"{name} is enabled twice")
            weight = entry.check("weight", entry.weight(), Weight)
            entry.finish()
            self.enabled.add(name)
            points = self.points.get(name, frozenset({point, "score"}))
            if point != "multiPoint" and point not in points:
                raise entry.error("name", f"{name} does not implement {point}, only {', '.join(sorted(points))}")
            if "score" in points and has_score(name, self.kubernetes_version):
                enabled[name] = weight
            elif point == "score":
                version = self.kubernetes_version
                raise entry.error("name", f"{name} has no score in Kubernetes {version}: kube-scheduler does not start")
        disabled = set()
        for entry in plugin_set.entries("disabled"):
            disabled.add(entry.honored("name", "*") if entry.raw("name") == "*" else self._name(entry))
            entry.finish()
        plugin_set.finish()
        return enabled, disabled

    def _arguments(self, weights: Mapping[str, int]) -> dict[str, Mapping[str, Any] | None]:
        arguments: dict[str, Mapping[str, Any] | None] = {}
        for entry in self.reader.entries("pluginConfig"):
            name = self._name(entry)
            if name in arguments:
                raise entry.error("name", f"{name} is configured twice")
            arguments[name] = entry.raw("args")
            if name not in self.scored:
                why = f"the score of {name} is not implemented"
                entry.ignored("args", _FOR_SCHEDULER if name in _OTHER_ARGUMENTS or name in self.points else why)
            elif name not in weights:
                entry.ignored("args", f"{name} is not enabled for scoring")
            else:
                entry.honored("args", None)
            entry.finish()
        return arguments

    def _name(self, entry: FieldReader) -> str:
        name = entry.raw("name")
        if not isinstance(name, str) or not name:
            raise entry.error("name", f"must be a plugin's name, got {quoted(name)}")
        if self.names is not None and (problem := self.names.problem(name)):
            raise UnknownPlugin(str(entry.error("name", problem)), name)
        return entry.honored("name", name)

    def _note(self, status: Any, key: str, detail: str) -> None:
        self.reader.notes.append(ConfigNote(f"{self.reader.path}.{key}", status, detail))
