"""kube-scheduler with the extender in shadow, in an outage, dead and removed, against kube-scheduler without it.

All schedulers run at the same time on the same cluster. The API refuses their bindings, so that each of them scores
every pod in the same state. The test binds pods between the rounds.
"""

import contextlib
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from control_plane.api import Api, Object, path_of
from control_plane.cluster import ControlPlane
from control_plane.extender import Extender
from control_plane.preferences import SHAPES_WITH_OBJECTS, add_zones, shared_objects
from control_plane.scheduler import Attempt, Scheduler
from control_plane.shapes import RUNTIME_CLASS, SHAPES, nodes
from support.ports import nowhere
from support.servers import Service, wait_until

from scoring.kubernetes_version import KUBERNETES_VERSIONS, default_score_weights
from trimaran.cli.main import main
from trimaran.extender.kube_scheduler import ExtenderEndpoint, render_config
from trimaran.extender.profiles import ANSWER_FACTOR

pytestmark = pytest.mark.e2e

NODES = 40
ROUNDS = 4
BOUND_PER_ROUND = 40
OURS = {"name": "LoadVariationRiskBalancing", "weight": 1}
VERSIONS = {"kube-scheduler": KUBERNETES_VERSIONS[-1], "kube-scheduler-oldest": KUBERNETES_VERSIONS[0]}
STOCK, SHADOW, OUTAGE, DEAD, REMOVED, ACTIVE = "stock", "shadow", "outage", "dead", "removed", "active"
NOT_ACTING = (SHADOW, OUTAGE, DEAD, REMOVED)
#: Profiles of a user, without our plugins.
PROFILES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "own": {
        "plugins": {
            "score": {
                "enabled": [{"name": "ImageLocality", "weight": 4}, {"name": "NodeResourcesFit", "weight": 7}],
                "disabled": [{"name": "NodeResourcesBalancedAllocation"}],
            },
            "multiPoint": {"enabled": [{"name": "InterPodAffinity", "weight": 3}]},
        },
        "pluginConfig": [
            {"name": "NodeResourcesFit", "args": {"scoringStrategy": {
                "type": "MostAllocated", "resources": [{"name": "cpu", "weight": 2}, {"name": "memory", "weight": 1}],
            }}},
        ],
    },
}  # fmt: skip


def configuration(variant: str, *, with_ours: bool = True) -> dict[str, Any]:
    """Return a KubeSchedulerConfiguration with both profiles, with or without our plugin."""
    profiles = []
    for name, each in PROFILES.items():
        plugins = each.get("plugins", {})
        score = plugins.get("score", {})
        if with_ours:
            score = {**score, "enabled": [*score.get("enabled", ()), OURS]}
        profiles.append({**each, "schedulerName": f"{variant}-{name}", "plugins": {**plugins, "score": score}})
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": profiles,
    }  # fmt: skip


def refuse_bindings(cluster: ControlPlane) -> None:
    """Take kube-scheduler's rights to bind pods, volumes and devices; it keeps the right to read them."""
    bound = {
        "pods/binding", "persistentvolumes", "persistentvolumeclaims", "resourceclaims", "resourceclaims/status",
        "resourceclaims/binding",
    }  # fmt: skip
    for role in ("system:kube-scheduler", "system:volume-scheduler"):
        path = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}"
        rules = cluster.api.get(path)["rules"]
        for rule in rules:
            if bound & set(rule.get("resources", ())):
                rule["verbs"] = [verb for verb in rule["verbs"] if verb in {"get", "list", "watch"}]
        cluster.api.patch(path, {"rules": [rule for rule in rules if rule["verbs"]]})


@dataclass
class Comparison:
    """Scores of a variant against those of stock.

    Attributes:
        pods: number of pods whose scores were compared.
        rows: number of compared plugin scores, one per pod, node and plugin.
        equal: number of these that are ten times stock's.
        totals, equal_totals: number of final scores, and of those that are ten times stock's plus ten times the
            extender's answers.
        other_nodes: pods with other feasible nodes or plugins than with stock.
    """

    pods: int = 0
    rows: int = 0
    equal: int = 0
    totals: int = 0
    equal_totals: int = 0
    other_nodes: list[str] = field(default_factory=list)

    def add(self, stock: Attempt, own: Attempt) -> None:
        """Compare two attempts to place the same pod."""
        self.pods += 1
        if stock.totals.keys() != own.totals.keys() or stock.scores.keys() != own.scores.keys():
            self.other_nodes.append(own.pod)
        for plugin, points in stock.scores.items():
            self.rows += len(points)
            own_points = own.scores.get(plugin, {})
            self.equal += sum(own_points.get(name) == ANSWER_FACTOR * value for name, value in points.items())
        answers = Counter[str]()
        for scores in own.extenders.values():
            answers.update(scores)
        self.totals += len(stock.totals)
        for name, total in stock.totals.items():
            self.equal_totals += own.totals.get(name) == ANSWER_FACTOR * (total + answers[name])


@dataclass
class Run:
    """Results of all schedulers over all pods.

    Attributes:
        version: version of kube-scheduler.
        attempts: variant to the first attempt for each pod and profile.
        outcomes: variant to the extender's number of answers by outcome.
        files: variant to kube-scheduler's file and its /configz.
        pods: number of pods that each scheduler got.
        bound: pods that a scheduler bound in spite of its missing rights.
    """

    version: str
    attempts: Mapping[str, Mapping[str, Attempt]] = field(repr=False)
    outcomes: Mapping[str, Mapping[str, int]]
    files: Mapping[str, tuple[Mapping[str, Any], str]] = field(repr=False)
    pods: int
    bound: Sequence[str]

    def compare(self, variant: str) -> Comparison:
        """Compare a variant with stock."""
        comparison, stock, own = Comparison(), self.attempts[STOCK], self.attempts[variant]
        assert stock.keys() == own.keys()
        for name, attempt in stock.items():
            comparison.add(attempt, own[name])
        return comparison


@pytest.fixture(
    scope="module", params=["kube-scheduler", pytest.param("kube-scheduler-oldest", marks=pytest.mark.oldest)]
)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Results of one scheduler per variant, with the same pods in the same states of the cluster."""
    program, version = request.param, VERSIONS[request.param]
    folder, dice = tmp_path_factory.mktemp("cluster"), random.Random(33)
    with ControlPlane(folder) as cluster, ExitStack() as stack:
        refuse_bindings(cluster)
        added = list(nodes(dice, NODES))
        add_zones(added)
        cluster.api.create(RUNTIME_CLASS)
        cluster.api.create(*added)
        cluster.api.create(*shared_objects(dice, added))
        loads = {each["metadata"]["name"]: {"cpu": {"average": dice.uniform(5, 95)}} for each in added}
        extenders = start_extenders(cluster, stack, watcher_of(stack, folder, loads))
        files = {variant: file_of(variant, version, extenders) for variant in (STOCK, *NOT_ACTING, ACTIVE)}
        schedulers = {
            variant: stack.enter_context(
                Scheduler(
                    cluster, file["profiles"], program, extenders=file.get("extenders", []),
                    podInitialBackoffSeconds=3600, podMaxBackoffSeconds=3600,  # no second attempt
                )
            )
            for variant, file in files.items()
        }  # fmt: skip
        extenders[DEAD].process.kill()
        bound, count = score_all(cluster, dice, added)
        outcomes = {name: outcomes_of(extenders[name]) for name in (SHADOW, OUTAGE, ACTIVE)}
        configz = {variant: configz_of(cluster, each) for variant, each in schedulers.items()}
        attempts = {variant: first_attempts(variant, each) for variant, each in schedulers.items()}
    return Run(version, attempts, outcomes, {name: (files[name], configz[name]) for name in files}, count, bound)


def watcher_of(stack: ExitStack, folder: Path, loads: Mapping[str, Any]) -> str:
    """Start a watcher that fetches only once during the test; return its address."""
    file = folder / "loads.json"
    file.write_text(json.dumps({name: {**use, "memory": use["cpu"]} for name, use in loads.items()}))
    environment = {"TRIMARAN_FAKE__FILE": str(file), "TRIMARAN_WATCH__EXPIRY_SECONDS": "3600"}
    arguments = ("--provider", "Fake", "--interval", "3000")
    service = Service(folder / "store.sqlite", folder / "watcher.log", *arguments, **environment)
    stack.callback(service.close)
    service.wait_for("/readyz")
    return service.url


def start_extenders(cluster: ControlPlane, stack: ExitStack, watcher: str) -> dict[str, Extender]:
    """Start an extender for each variant but the one without; in the outage it is active, without a watcher."""
    settings = {"extender__deadline_seconds": 5, "extender__max_age_seconds": 3600}
    return {
        variant: stack.enter_context(
            Extender(cluster, configuration(variant), address, extender__mode=mode, **settings)
        )
        for variant, address, mode in (
            (SHADOW, watcher, "shadow"), (OUTAGE, nowhere(), "active"), (DEAD, watcher, "active"),
            (ACTIVE, watcher, "active"),
        )
    }  # fmt: skip


def file_of(variant: str, version: str, extenders: Mapping[str, Extender]) -> dict[str, Any]:
    """Return kube-scheduler's file for a variant."""
    if variant == STOCK:
        return configuration(variant, with_ours=False)
    url = extenders[variant].url if variant in extenders else "http://127.0.0.1:1"
    rendered = render_config(configuration(variant), ExtenderEndpoint(url), version)
    if variant == REMOVED:
        del rendered["extenders"]
    elif variant != DEAD:
        rendered["extenders"][0]["httpTimeout"] = "10s"  # so that a busy machine does not look like an outage
    return rendered


def score_all(cluster: ControlPlane, dice: random.Random, added: Sequence[Object]) -> tuple[list[str], int]:
    """Have all schedulers score pods of every shape in several rounds, with more pods bound in each.

    Return the pods that are bound although bindings are refused, and the number of pods for each scheduler.
    """
    shapes = [*(lambda dice, name, shape=shape: [shape(dice, name)] for shape in SHAPES), *SHAPES_WITH_OBJECTS]
    count, bound = 0, []
    for number in range(ROUNDS):
        for shape in shapes:
            name = f"pod-{count}"
            count += 1
            *needed, manifest = shape(dice, name)
            if needed:
                cluster.api.create(*needed)
            for profile in PROFILES:
                bound += score_once(cluster, manifest, profile)
        more = [dice.choice(shapes)(dice, f"bound-{number}-{n}")[-1] for n in range(BOUND_PER_ROUND)]
        for each in more:
            each["spec"]["nodeName"] = dice.choice(added)["metadata"]["name"]
        cluster.api.create(*more)
    return bound, count * len(PROFILES)


def score_once(cluster: ControlPlane, manifest: Object, profile: str) -> list[str]:
    """Create a copy of a pod for each scheduler, wait for their attempts, and delete the copies; return bound pods."""
    copies = []
    for variant in (STOCK, *NOT_ACTING, ACTIVE):
        metadata = {**manifest["metadata"], "name": f"{manifest['metadata']['name']}.{profile}.{variant}"}
        copies.append(
            {**manifest, "metadata": metadata, "spec": {**manifest["spec"], "schedulerName": f"{variant}-{profile}"}}
        )
    created = cluster.api.create(*copies)

    # A failed attempt is written to the pod when the scheduler has forgotten where the pod would have gone.
    def all_tried() -> list[Object]:
        found = [cluster.api.get(path_of(each)) for each in created]
        return found if all(each["spec"].get("nodeName") or each["status"].get("conditions") for each in found) else []

    tried = wait_until(all_tried, f"{manifest['metadata']['name']} is scored by all schedulers")
    for each in created:
        cluster.api.delete(path_of(each))
    return [each["metadata"]["name"] for each in tried if each["spec"].get("nodeName")]


def first_attempts(variant: str, scheduler: Scheduler) -> dict[str, Attempt]:
    """Return the first attempt for each pod, by the name that all variants share."""
    attempts: dict[str, Attempt] = {}
    for attempt in scheduler.attempts():
        attempts.setdefault(attempt.pod.removesuffix(f".{variant}"), attempt)
    return attempts


def outcomes_of(extender: Extender) -> dict[str, int]:
    prefix = "trimaran_extender_answers_total{"
    return {name: int(value) for name, value in extender.metrics().items() if name.startswith(prefix) and value}


def configz_of(cluster: ControlPlane, scheduler: Scheduler) -> str:
    """Return the response of a scheduler's /configz."""
    api = Api(scheduler.url, cluster.certificates.certificate, cluster.api.token)
    with contextlib.closing(api) as administrator:
        return administrator.request("GET", "/configz").text


def test_every_score_is_ten_times_that_without_the_extender(
    run: Run, record_property: Callable[[str, object], None]
) -> None:
    """In shadow, in an outage, with a dead extender and with none, the same nodes get ten times stock's points."""
    comparisons = {variant: run.compare(variant) for variant in NOT_ACTING}
    for variant, each in comparisons.items():
        record_property(
            "figures",
            f"kube-scheduler {run.version}, {variant}: {each.equal} of {each.rows} plugin scores and "
            f"{each.equal_totals} of {each.totals} sums of {each.pods} pods are ten times stock's",
        )
    for variant, each in comparisons.items():
        assert not each.other_nodes, variant
        assert (each.equal, each.equal_totals) == (each.rows, each.totals), variant
        assert each.pods == run.pods
        assert each.rows > 20 * run.pods * 4, variant
        answers = {score for attempt in run.attempts[variant].values() for scores in attempt.extenders.values()
                   for score in scores.values()}  # fmt: skip
        assert answers == ({0} if variant in {SHADOW, OUTAGE} else set())
    assert not run.bound


def test_the_extender_was_called_and_did_not_act(run: Run) -> None:
    """The extender answered for every scored pod, in shadow and without metrics."""
    scored = sum(bool(attempt.totals) for attempt in run.attempts[STOCK].values())
    assert scored > 0.8 * run.pods
    for variant, outcome in ((SHADOW, "shadow"), (OUTAGE, "no_metrics"), (ACTIVE, "scored")):
        assert run.outcomes[variant] == {f'trimaran_extender_answers_total{{outcome="{outcome}"}}': scored}


def test_an_active_extender_adds_its_answer_to_the_same_scores(
    run: Run, record_property: Callable[[str, object], None]
) -> None:
    """Acting changes no score of another plugin: the sum is ten times stock's plus ten times the answer."""
    comparison = run.compare(ACTIVE)
    moved = sum(
        bool(attempt.totals) and best(attempt).isdisjoint(best(run.attempts[STOCK][name]))
        for name, attempt in run.attempts[ACTIVE].items()
    )
    record_property(
        "figures",
        f"kube-scheduler {run.version}, active: {comparison.equal} of {comparison.rows} plugin scores and "
        f"{comparison.equal_totals} of {comparison.totals} sums as expected; {moved} of {comparison.pods} pods go "
        "to another node",
    )
    assert not comparison.other_nodes
    assert (comparison.equal, comparison.equal_totals) == (comparison.rows, comparison.totals)
    assert moved > 0.2 * run.pods


def best(attempt: Attempt) -> set[str]:
    """Return the nodes with the highest sum."""
    return {name for name, total in attempt.totals.items() if total == max(attempt.totals.values())}


def test_the_pods_need_every_score_plugin(run: Run) -> None:
    """Each plugin that scores by default distinguishes nodes for some pods, so the comparison is not empty."""
    decisive = Counter(
        plugin
        for attempt in run.attempts[STOCK].values()
        for plugin, points in attempt.scores.items()
        if len(set(points.values())) > 1
    )
    expected = set(default_score_weights(run.version))
    if run.version != KUBERNETES_VERSIONS[-1]:
        expected -= {"VolumeBinding"}  # scores nothing before 1.37
    assert {plugin for plugin in expected if decisive[plugin] < ROUNDS} == set()


def test_the_running_configuration_is_compared_with_the_file(run: Run, tmp_path: Path) -> None:
    """``extender config --check --configz`` accepts the scheduler's own file, and names each difference of another."""
    document, configz = run.files[DEAD]
    other_url = {**document, "extenders": [{**document["extenders"][0], "urlPrefix": "http://127.0.0.1:1"}]}
    other_weight = json.loads(
        json.dumps(document).replace('"TaintToleration", "weight": 30', '"TaintToleration", "weight": 50')
    )
    for file, problems in (
        (document, ["the configuration is valid, and uses the extender; the running kube-scheduler has it"]),
        (other_url, [
            "extender http://127.0.0.1:1: the running kube-scheduler has no such extender",
            f"extender {document['extenders'][0]['urlPrefix']}: only the running kube-scheduler has it",
        ]),
        (other_weight, [
            f"profile dead-{name}: TaintToleration has weight 50 in the file, weight 30 when running"
            for name in PROFILES
        ]),
    ):  # fmt: skip
        (tmp_path / "kube-scheduler.yaml").write_text(yaml.safe_dump(file))
        (tmp_path / "configz.json").write_text(configz)
        command = [
            "extender", "config", str(tmp_path / "kube-scheduler.yaml"), "--check", "--kubernetes-version", run.version,
            "--configz", str(tmp_path / "configz.json"),
        ]  # fmt: skip
        result = CliRunner().invoke(main, command)
        assert result.stdout.splitlines() == problems
        assert result.exit_code == (file is not document)
