"""Labels that name a container in cAdvisor's series, which differ by scrape job.

A job without ``honor_labels`` that adds labels of the scraped target renames the container's labels: ``exported_pod``
is then the pod, and ``pod`` the target. The sums of pods and nodes, which lack some labels, then look like containers
of the target.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from runtime.http.gather import Deadline
from watcher.providers.own_labels import EXPORTED
from watcher.providers.prometheus.selectors import any_of

CPU_SERIES = "container_cpu_usage_seconds_total"
_NAMES = ("namespace", "pod", "container")

Run = Callable[[str, int | None, Deadline], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class ContainerLabels:
    """Labels that name a container in the series of some scrape jobs.

    Attributes:
        namespace: label of the namespace.
        pod: label of the pod.
        container: label of the container.
        jobs: label matcher of the scrape jobs; empty for all.
    """

    namespace: str = "namespace"
    pod: str = "pod"
    container: str = "container"
    jobs: str = ""

    @property
    def by(self) -> str:
        """The labels, for an aggregation by container."""
        return f"{self.namespace}, {self.pod}, {self.container}"

    def select(self, metric: str, *matchers: str) -> str:
        """Return a selector without the sums of pods and nodes, and without pause containers."""
        own = f'{self.container}!="",{self.container}!="POD"'
        return f"{metric}{{{','.join(filter(None, (own, self.jobs, *matchers)))}}}"

    def names_of(self, labels: Mapping[str, str]) -> tuple[str, str, str] | None:
        """Return namespace, pod and container of a series; None if it does not have all of them."""
        names = labels.get(self.namespace, ""), labels.get(self.pod, ""), labels.get(self.container, "")
        return names if all(names) else None


PLAIN_LABELS = ContainerLabels()


def read_container_labels(
    run: Run, matchers: str, at: int | None, deadline: Deadline, seconds: int = 0
) -> list[ContainerLabels]:
    """Return the labels that name a container, for each group of scrape jobs that use the same labels.

    Args:
        run: runs a PromQL expression at a time, in Unix seconds or now, and returns its series.
        matchers: label matchers for all series.
        at: time of the query, Unix seconds; None for now.
        deadline: time at which everything must have been read.
        seconds: include series with a sample in so many seconds before ``at``; 0 for present series only.

    Raises:
        Exception: a query failed.
    """
    renamed: dict[str, frozenset[str]] = {}  # job to labels
    for name in _NAMES:
        has_name = f'{EXPORTED}{name}!=""'
        selector = f"{CPU_SERIES}{{{','.join(filter(None, (has_name, matchers)))}}}"
        series = f"last_over_time({selector}[{seconds}s])" if seconds else selector
        for item in run(f"group by (job) ({series})", at, deadline):
            job = item["metric"].get("job", "")
            renamed[job] = renamed.get(job, frozenset()) | {name}
    if not renamed:
        return [PLAIN_LABELS]
    groups: dict[frozenset[str], list[str]] = {}
    for job, names in renamed.items():
        groups.setdefault(names, []).append(job)
    labels = []
    for names, jobs in groups.items():
        namespace, pod, container = (EXPORTED + name if name in names else name for name in _NAMES)
        labels.append(ContainerLabels(namespace, pod, container, f'job=~"{any_of(jobs)}"'))
    return [*labels, ContainerLabels(jobs=f'job!~"{any_of(list(renamed))}"')]
