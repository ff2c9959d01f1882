"""Plugins of a profile at each extension point, which kube-scheduler's framework computes at its start.

Source: default_plugins.go of k8s.io/kubernetes/pkg/scheduler/apis/config/v1, and NewFramework, updatePluginList and
expandMultiPointPlugins of pkg/scheduler/framework/runtime/framework.go.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from trimaran.kube_scheduler.findings import Findings
from trimaran.kube_scheduler.table import VersionTable

_MULTI = "multiPoint"
_ONE_OF = {"queueSort": "one plugin must order the queue", "bind": "at least one plugin must bind pods"}


@dataclass
class Framework:
    """Plugins of a profile by extension point.

    Attributes:
        path: path of the profile.
        plugins: value of the profile's ``plugins``.
        table: structs, plugins and defaults of this version of kube-scheduler.
        others: names of plugins that this kube-scheduler has in addition; None allows all names.
        scores: names of the ``others`` that only score nodes, and whose arguments are checked elsewhere; the extension
            points and arguments of the rest are not known.
        needed: names of all enabled plugins.
        queue_sort: plugins that order the queue.
    """

    path: str
    plugins: Mapping[str, Any]
    table: VersionTable
    others: Collection[str] | None
    scores: Collection[str] = ()
    needed: set[str] = field(default_factory=set)
    queue_sort: list[str] = field(default_factory=list)

    def build(self, findings: Findings) -> None:
        """Compute the plugins of each extension point, and record the reasons why kube-scheduler refuses them."""
        multi = self._multi_point()
        enabled = {point: self._names(point, "enabled") for point in self.table.structs["Plugins"] if point != _MULTI}
        self.needed = {*multi, *(name for names in enabled.values() for name in names)}
        missing = sorted(name for name in self.needed - self.table.plugins.keys() if not self._is_other(name))
        findings.missing += [name for name in missing if name not in findings.missing]
        elsewhere = {name for point, names in enabled.items() for name in names if point != "score"}
        scores = set(self.scores) - elsewhere
        unknown = sorted(self.needed - self.table.plugins.keys() - scores - set(missing))
        for name in unknown:
            findings.leave(f"{self.path}.plugins", f"the extension points and arguments of {name} are not known")
        for point, names in enabled.items():
            self._check_point(point, names, findings)
            final = self._expanded(point, names, multi, findings)
            if point == "queueSort":
                self.queue_sort = final
            uncertain = unknown or missing
            where = f"{self.path}.plugins.{point}"
            if point in _ONE_OF and not final and not uncertain:
                findings.refuse(where, f"{_ONE_OF[point]}, and none does")
            elif point in {"queueSort", "placementGenerate"} and len(final) > 1:
                findings.refuse(where, f"at most one plugin is possible, got {', '.join(final)}")

    def _names(self, point: str, which: str) -> list[str]:
        return [each.get("name", "") for each in self.plugins.get(point, {}).get(which, [])]

    def _is_other(self, name: str) -> bool:
        return self.others is None or name in self.others

    def _multi_point(self) -> list[str]:
        """Return the plugins at ``multiPoint``: the defaults that are not disabled, then the file's."""
        disabled, own = set(self._names(_MULTI, "disabled")), self._names(_MULTI, "enabled")
        defaults = [] if "*" in disabled else [name for name in self.table.defaults if name not in disabled]
        # An entry of the file replaces the default plugin of its name once; a second entry stays, and is refused later.
        last = {name: index for index, name in enumerate(own)}
        return [*defaults, *(name for index, name in enumerate(own) if name not in defaults or last[name] != index)]

    def _check_point(self, point: str, names: list[str], findings: Findings) -> None:
        for index, name in enumerate(names):
            where = f"{self.path}.plugins.{point}.enabled[{index}].name"
            points = self.table.plugins.get(name)
            if points is not None and point not in points:
                findings.refuse(where, f"{name} does not implement {point}")
            if names.index(name) < index:
                findings.refuse(where, f"{name} is enabled twice")

    def _expanded(self, point: str, names: list[str], multi: list[str], findings: Findings) -> list[str]:
        """Return the plugins of an extension point, with those that ``multiPoint`` adds."""
        disabled, added = self._names(point, "disabled"), list[str]()
        for name in multi if "*" not in disabled else ():
            if point not in self.table.plugins.get(name, ()) or name in disabled or name in names:
                continue
            if name in added:
                findings.refuse(f"{self.path}.plugins.multiPoint", f"{name} is enabled twice")
            added.append(name)
        return [*names, *added]
