"""Programs that can use a KubeSchedulerConfiguration, for ``trimaran config check``."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from scoring import SchedulerConfiguration
from scoring.kubernetes_version import in_tree_plugins
from scoring.profiles.configuration.plugins import OWN_OPTIONS, PLUGINS, UPSTREAM_PLUGINS
from trimaran.kube_scheduler.findings import StartVerdict
from trimaran.kube_scheduler.go_yaml import as_text
from trimaran.kube_scheduler.verdict import verdict_of
from trimaran.plugins import uncalled
from trimaran.scheduler_file import SchedulerFile


@dataclass(frozen=True)
class Users:
    """Answers to whether each program can use a KubeSchedulerConfiguration file: "yes", or the reason why not.

    Attributes:
        file: the file.
        configuration: parsed content of the file.
        version: version of kube-scheduler.
        allow: names of the plugins that this kube-scheduler has in addition to those of Kubernetes.
        judged: returns whether kube-scheduler starts with a file, and why not.
    """

    file: SchedulerFile
    configuration: SchedulerConfiguration
    version: str
    allow: frozenset[str]
    judged: Callable[[bytes], StartVerdict]

    def rows(self) -> Iterator[list[str]]:
        """Yield name and answer of each program other than a stock kube-scheduler and ``trimaran scheduler``."""
        if self.configuration.enabled - self.allow - in_tree_plugins(self.version):
            yield ["kube-scheduler with the Go plugins", self._go_plugins()]
        yield ["kube-scheduler with trimaran's extender", self._extender()]
        score = f"yes{_ignoring(unknown_keys(self.configuration))}"
        yield ["trimaran score", score if self._scored() else "no: it enables no score that is implemented"]

    def _go_plugins(self) -> str:
        """Return the answer for kube-scheduler with the Go plugins; trimaran checks the arguments of their scores."""
        verdict = verdict_of(
            self.file.text, self.version, self.allow | UPSTREAM_PLUGINS, UPSTREAM_PLUGINS.intersection(PLUGINS)
        )
        refused = [each for each in self._refused() if each.partition("Args.")[0] in UPSTREAM_PLUGINS]
        if verdict.answer != "no" and refused:
            return f"no: it refuses {', '.join(refused)}"
        return verdict.row

    def _refused(self) -> list[str]:
        """Return the paths of unknown keys and of trimaran's own options, which the Go plugins refuse."""
        options = {note.path for note in self.configuration.notes if note.path in OWN_OPTIONS}
        return [*unknown_keys(self.configuration), *sorted(options)]

    def _extender(self) -> str:
        """Return the answer for kube-scheduler with the extender: it reads a conversion without trimaran's plugins."""
        from trimaran.extender.kube_scheduler import ExtenderEndpoint, render_config  # only needed here
        from trimaran.extender.profiles import our_plugins

        ours = our_plugins()
        verdict = verdict_of(self.file.text, self.version, self.allow | ours, ours)
        if verdict.answer == "no":
            return verdict.row
        if not self._scored() & ours:
            return f"no: it enables none of {', '.join(sorted(ours))}"
        try:
            rendered = render_config(
                self.file.document, ExtenderEndpoint("http://127.0.0.1:2021"), self.version, self.allow
            )
        except ValueError as error:
            return f"no: {error}"
        verdict = self.judged(as_text(rendered))
        # kube-scheduler does not see the arguments of our plugins; the extender warns of those that it does not know.
        ignored = [path for path in unknown_keys(self.configuration) if path.partition("Args.")[0] in ours]
        ignored += [each.partition("; ")[0] for each in uncalled(self.file.document)]
        converted = f"converted by trimaran extender config{_ignoring(ignored)}"
        return f"yes, {converted}" if verdict.answer == "yes" else verdict.row

    def _scored(self) -> set[str]:
        return {each.plugin.name for profile in self.configuration.profiles for each in profile.plugins}


def unknown_keys(configuration: SchedulerConfiguration) -> list[str]:
    """Return the paths of a file's unknown keys."""
    return [note.path for note in configuration.notes if note.status == "unknown"]


def _ignoring(keys: Sequence[str]) -> str:
    return f"; it ignores {', '.join(keys)}" if keys else ""
