"""A plugin of your own in ``trimaran scheduler``, which reads the load of the nodes: in a replay, in shadow, and live.

    python examples/scheduler.py --replay                                                      # needs no cluster
    python examples/scheduler.py --shadow --watcher http://127.0.0.1:2020 --kube-config ~/.kube/config
    python examples/scheduler.py --watcher http://127.0.0.1:2020 --kube-config ~/.kube/config  # places pods

The plugin is a filter next to all of kube-scheduler's: it keeps pods off nodes whose measured CPU use is high, as long
as other nodes are cooler. Live and in shadow the process serves what ``trimaran scheduler`` serves on port 2025, such
as ``GET /shadow``, and needs the same rights. Pods select it by ``spec.schedulerName``.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from scoring import FilterPlugin, FilterVerdict, NodeTable, Pod, Rows
from trimaran.cluster.settings import ClusterSection
from trimaran.scheduler.framework.extension_points import SchedulerHandle, SchedulerPlugin
from trimaran.scheduler.profiles.configuration import SchedulerSetup, default_document
from trimaran.scheduler.service.service import serve
from trimaran.scheduler.service.settings import SchedulerSection, SchedulerServerSettings, SchedulerSettings
from trimaran.simulator.measures import measures
from trimaran.simulator.policies.standalone import StandalonePolicy
from trimaran.simulator.replay import Replay, ReplayOptions
from trimaran.traces.synthetic import Synthetic


class CoolNodes(FilterPlugin, SchedulerPlugin):
    """Filter that refuses nodes with a high measured CPU use, unless all nodes are hot."""

    name = "CoolNodes"
    reads_metrics = True

    def __init__(self, limit_percent: float = 70.0) -> None:
        self.limit_percent = limit_percent

    def attach(self, handle: SchedulerHandle) -> None:
        """Take the handle of the scheduler, which has the metrics."""
        self._handle = handle

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = slice(None)) -> FilterVerdict | None:  # noqa: ARG002
        """Return which nodes are cool; None, which allows every node, without fresh metrics or if all are hot."""
        cpu = self._handle.metrics(nodes).of("CPU")
        hot = cpu.valid & (cpu.average > self.limit_percent)
        if not hot.any() or hot.all():
            return None
        return FilterVerdict(~hot[rows], "node(s) had a high CPU use", unresolvable=hot[rows])


def with_plugin(setup: SchedulerSetup) -> SchedulerSetup:
    """Return a configuration of the scheduler with the plugin as the last filter of each profile."""
    profiles = tuple(replace(each, filters=(*each.filters, CoolNodes())) for each in setup.profiles)
    return replace(setup, profiles=profiles)


def replay(name: str) -> None:
    """Replay a synthetic world without and with the plugin, and print what it changes."""
    trace = Synthetic(seed=1, nodes=20, minutes=180, warm_up_minutes=60).trace()
    document = default_document(name)
    for policy in (StandalonePolicy("default", document), StandalonePolicy("CoolNodes", document, adapt=with_plugin)):
        measured = measures(Replay(trace, policy, ReplayOptions(overcommit=(4.0, 4.0))).run())
        hot, unplaced = measured["hot_minutes_70"], measured["unplaced_pods"]
        print(f"{policy.name}: {hot:.0f} minutes of nodes at 70 % CPU or more, {unplaced:.0f} unplaced pods")


def main(arguments: Sequence[str] | None = None) -> None:
    """Replay, or schedule until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="trimaran", help="schedulerName of the pods to place [default: trimaran]")
    parser.add_argument("--replay", action="store_true", help="replay a synthetic world instead")
    parser.add_argument("--shadow", action="store_true", help="place nothing: compare with the scheduler of that name")
    parser.add_argument("--watcher", help="address of a watcher")
    parser.add_argument("--kube-config", type=Path, help="a kubeconfig; without it, the pod's service account is used")
    parser.add_argument("--port", type=int, default=2025, help="port of the probes, metrics and /shadow")
    options = parser.parse_args(arguments)
    if options.replay:
        replay(options.name)
        return
    if not options.watcher:
        parser.error("--watcher is needed, or --replay")
    mode = "shadow" if options.shadow else "bind"
    settings = SchedulerSettings(
        scheduler=SchedulerSection(name=options.name, mode=mode),
        cluster=ClusterSection(watcher=options.watcher, kube_config=options.kube_config),
        server=SchedulerServerSettings(port=options.port),
    )
    serve(settings, with_plugin)


if __name__ == "__main__":
    main()
