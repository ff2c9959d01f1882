"""Filters and scores of pods' rules about other pods, against a slow version that looks at every pod and node."""

import math
import random

import numpy as np
import pytest

from runtime.kubernetes.scheduling_rules import NO_RULES
from scoring import Node, NodeTable, Pod
from scoring.load.metrics_table import MetricsTable
from scoring.plugins.inter_pod_affinity import InterPodAffinity
from scoring.plugins.node_affinity import NodeAffinity
from scoring.plugins.node_ports import NodePorts
from scoring.plugins.pod_topology_spread import PodTopologySpread
from scoring.plugins.taint_toleration import TaintToleration
from scoring.table.placed_rules import SelectorSources

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
NAMESPACES = {"a": {"team": "x"}, "b": {"team": "y"}, "c": {}}
REQUIRED, PREFERRED = (f"{kind}DuringSchedulingIgnoredDuringExecution" for kind in ("required", "preferred"))


def drawn_selector(dice):
    kind = dice.random()
    if kind < 0.05:
        return None
    if kind < 0.1:
        return {}
    if kind < 0.6:
        return {"matchLabels": {"app": dice.choice("pqr")}}
    operator = dice.choice(["In", "NotIn", "Exists", "DoesNotExist"])
    values = dice.sample(["p", "q", "r"], 2) if operator in {"In", "NotIn"} else []
    return {"matchExpressions": [{"key": dice.choice(["app", "tier"]), "operator": operator, "values": values}]}


def drawn_term(dice):
    term = {"topologyKey": dice.choice([HOST, ZONE, "rack"])}
    if (selector := drawn_selector(dice)) is not None:
        term["labelSelector"] = selector
    if dice.random() < 0.3:
        term["namespaces"] = dice.sample(["a", "b", "c"], dice.choice([1, 2]))
    if dice.random() < 0.3:
        term["namespaceSelector"] = dice.choice([{}, {"matchLabels": {"team": "x"}}])
    return term


def drawn_affinity(dice, likely):
    rules = {}
    for kind in ("podAffinity", "podAntiAffinity"):
        if dice.random() < likely:
            rules.setdefault(kind, {})[REQUIRED] = [drawn_term(dice) for _ in range(dice.choice([1, 1, 2]))]
        if dice.random() < likely:
            rules.setdefault(kind, {})[PREFERRED] = [
                {"weight": dice.randint(1, 100), "podAffinityTerm": drawn_term(dice)} for _ in range(2)
            ]
    if dice.random() < likely:
        preference = {"matchExpressions": [{"key": "rack", "operator": "In", "values": [dice.choice("123")]}]}
        preferred = [{"weight": dice.randint(1, 100), "preference": preference} for _ in range(2)]
        rules["nodeAffinity"] = {PREFERRED: [*preferred, {"weight": 7, "preference": {}}]}
    return rules


def drawn_constraint(dice):
    constraint = {
        "maxSkew": dice.choice([1, 1, 2]),
        "topologyKey": dice.choice([HOST, ZONE, "rack"]),
        "whenUnsatisfiable": dice.choice(["DoNotSchedule", "ScheduleAnyway"]),
    }
    if (selector := drawn_selector(dice)) is not None:
        constraint["labelSelector"] = selector
    if dice.random() < 0.2:
        constraint["minDomains"] = dice.choice([1, 3])
    if dice.random() < 0.3:
        constraint["nodeAffinityPolicy"] = dice.choice(["Honor", "Ignore"])
    if dice.random() < 0.3:
        constraint["nodeTaintsPolicy"] = dice.choice(["Honor", "Ignore"])
    if dice.random() < 0.3:
        constraint["matchLabelKeys"] = ["tier"]
    return constraint


def drawn_pod(dice, name, likely=0.2):
    spec = {"containers": [{"name": "c"}]}
    if dice.random() < 0.3:
        port = {"containerPort": 80, "hostPort": dice.choice([80, 81]), "protocol": dice.choice(["TCP", "UDP"])}
        if dice.random() < 0.5:
            port["hostIP"] = dice.choice(["10.0.0.1", "10.0.0.2", "0.0.0.0"])
        spec["containers"][0]["ports"] = [port]
    if affinity := drawn_affinity(dice, likely):
        spec["affinity"] = affinity
    if dice.random() < 2 * likely:
        spec["topologySpreadConstraints"] = [drawn_constraint(dice) for _ in range(dice.choice([1, 2]))]
    if dice.random() < 0.2:
        spec["nodeSelector"] = {"rack": dice.choice("123")}
    if dice.random() < 0.5:
        spec["tolerations"] = [{"key": "t", "operator": "Exists"}]
    labels = {"app": dice.choice("pqr")}
    if dice.random() < 0.5:
        labels["tier"] = dice.choice(["p", "q"])
    metadata = {"name": name, "namespace": dice.choice("abc"), "uid": name, "labels": labels}
    if dice.random() < 0.1:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": metadata, "spec": spec}


def drawn_node(dice, number):
    labels = {HOST: f"n{number}"}
    if dice.random() < 0.8:
        labels[ZONE] = dice.choice(["z1", "z2", "z3"])
    if dice.random() < 0.8:
        labels["rack"] = dice.choice("123")
    if dice.random() < 0.05:
        del labels[HOST]
    effects = [dice.choice(["NoSchedule", "PreferNoSchedule"]) for _ in range(dice.choice([0, 0, 1, 2]))]
    taints = [{"key": dice.choice("tu"), "effect": effect} for effect in effects]
    return {"metadata": {"name": f"n{number}", "labels": labels}, "spec": {"taints": taints}}


def domains(terms, labels):
    """Return the key and value of each term's domain, for those keys that a node has."""
    return [(term["topologyKey"], labels[term["topologyKey"]]) for term in terms if term["topologyKey"] in labels]


class Slow:
    """Slow version: plain loops over the JSON of every pod and node, as the Go source has them."""

    def __init__(self, nodes, placed, pod, namespaces=NAMESPACES):
        self.nodes, self.pod, self.namespaces = nodes, pod, namespaces
        self.on = {node["metadata"]["name"]: [] for node in nodes}
        for name, each in placed:
            self.on[name].append(each)

    @staticmethod
    def selects(selector, labels):
        if selector is None:
            return False
        for key, value in (selector.get("matchLabels") or {}).items():
            if labels.get(key) != value:
                return False
        for each in selector.get("matchExpressions") or ():
            key, operator, values = each["key"], each["operator"], each["values"]
            holds = {
                "In": key in labels and labels[key] in values,
                "NotIn": key not in labels or labels[key] not in values,
                "Exists": key in labels,
                "DoesNotExist": key not in labels,
            }[operator]
            if not holds:
                return False
        return True

    def matches(self, owner, term, other):
        """Return whether a term of one pod selects another pod."""
        names = set(term.get("namespaces") or ())
        chosen = term.get("namespaceSelector")
        if not names and chosen is None:
            names = {owner["metadata"]["namespace"]}
        namespace = other["metadata"]["namespace"]
        if namespace not in names and not self.selects(chosen, self.namespaces.get(namespace, {})):
            return False
        return self.selects(term.get("labelSelector"), other["metadata"]["labels"])

    @staticmethod
    def terms(pod, kind, way):
        return pod["spec"].get("affinity", {}).get(kind, {}).get(way, [])

    def pairs(self):
        return [(node["metadata"]["labels"], pod) for node in self.nodes for pod in self.on[node["metadata"]["name"]]]

    def affinity_filter(self):
        wanted, hated = (self.terms(self.pod, kind, REQUIRED) for kind in ("podAffinity", "podAntiAffinity"))
        placed_anti, anti, affine = set(), set(), set()
        for labels, other in self.pairs():
            placed = self.terms(other, "podAntiAffinity", REQUIRED)
            placed_anti.update(domains([term for term in placed if self.matches(other, term, self.pod)], labels))
            anti.update(domains([term for term in hated if self.matches(self.pod, term, other)], labels))
            if all(self.matches(self.pod, term, other) for term in wanted):
                affine.update(domains(wanted, labels))
        alone = not affine and all(self.matches(self.pod, term, self.pod) for term in wanted)
        result = []
        for node in self.nodes:
            labels = node["metadata"]["labels"]
            keys = [term["topologyKey"] for term in wanted]
            found = all(key in labels and (key, labels[key]) in affine for key in keys)
            if wanted and not found and not (alone and all(key in labels for key in keys)):
                result.append("node(s) didn't match pod affinity rules!")
            elif anti.intersection(domains(hated, labels)):
                result.append("node(s) didn't match pod anti-affinity rules")
            else:
                is_repelled = placed_anti.intersection(labels.items())
                result.append("node(s) didn't satisfy existing pods anti-affinity rules" if is_repelled else "")
        return result

    def weighted(self, hard):
        """Yield the weight and the domain of each term that selects a pod, once for each pod."""
        for labels, other in self.pairs():
            for owner, selected in ((self.pod, other), (other, self.pod)):
                for kind, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
                    for each in self.terms(owner, kind, PREFERRED):
                        if self.matches(owner, each["podAffinityTerm"], selected):
                            for domain in domains([each["podAffinityTerm"]], labels):
                                yield sign * each["weight"], domain
            for term in self.terms(other, "podAffinity", REQUIRED):
                if self.matches(other, term, self.pod):
                    for domain in domains([term], labels):
                        yield hard, domain

    def affinity_scores(self, feasible, hard=1):
        sums = {}
        for weight, domain in self.weighted(hard):
            sums[domain] = sums.get(domain, 0) + weight
        raw = [sum(sums.get(pair, 0) for pair in self.nodes[row]["metadata"]["labels"].items()) for row in feasible]
        low, high = min(raw), max(raw)
        return [int(100.0 * (float(each - low) / float(high - low))) if high > low else 0 for each in raw]

    def constraints(self, unsatisfiable):
        labels = self.pod["metadata"]["labels"]
        for each in self.pod["spec"].get("topologySpreadConstraints", ()):
            if each["whenUnsatisfiable"] == unsatisfiable:
                selector = each.get("labelSelector")
                more = {key: labels[key] for key in each.get("matchLabelKeys", ()) if key in labels}
                if selector is not None and more:
                    added = [{"key": k, "operator": "In", "values": [v]} for k, v in more.items()]
                    selector = {**selector, "matchExpressions": [*selector.get("matchExpressions", ()), *added]}
                yield each, selector

    def count(self, node, selector):
        if not selector or not (selector.get("matchLabels") or selector.get("matchExpressions")):
            return 0
        return sum(
            "deletionTimestamp" not in other["metadata"]
            and other["metadata"]["namespace"] == self.pod["metadata"]["namespace"]
            and self.selects(selector, other["metadata"]["labels"])
            for other in self.on[node["metadata"]["name"]]
        )

    def is_included(self, constraint, node):
        labels, spec = node["metadata"]["labels"], self.pod["spec"]
        is_selected = all(labels.get(key) == value for key, value in spec.get("nodeSelector", {}).items())
        if constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and not is_selected:
            return False
        if constraint.get("nodeTaintsPolicy", "Ignore") == "Honor":
            tolerated = {toleration["key"] for toleration in spec.get("tolerations", ())}
            return all(t["effect"] != "NoSchedule" or t["key"] in tolerated for t in node["spec"]["taints"])
        return True

    def spread_filter(self):
        constraints = list(self.constraints("DoNotSchedule"))
        keys = [each["topologyKey"] for each, _ in constraints]
        totals = []
        for each, selector in constraints:
            total = {}
            for node in self.nodes:
                labels = node["metadata"]["labels"]
                if all(key in labels for key in keys) and self.is_included(each, node):
                    value = labels[each["topologyKey"]]
                    total[value] = total.get(value, 0) + self.count(node, selector)
            totals.append(total)
        return [self.spread_reason(node, constraints, totals) for node in self.nodes]

    def spread_reason(self, node, constraints, totals):
        labels = node["metadata"]["labels"]
        for (each, selector), total in zip(constraints, totals, strict=True):
            if each["topologyKey"] not in labels:
                return "node(s) didn't match pod topology spread constraints (missing required label)!"
            fewest = 0 if len(total) < each.get("minDomains", 1) else min(total.values())
            itself = self.selects(selector, self.pod["metadata"]["labels"])
            if total.get(labels[each["topologyKey"]], 0) + itself - fewest > each["maxSkew"]:
                return "node(s) didn't match pod topology spread constraints"
        return ""

    def spread_scores(self, feasible, constraints=None, needs_all=True):
        constraints = list(self.constraints("ScheduleAnyway")) if constraints is None else constraints
        if not constraints:
            return [0] * len(feasible)
        nodes = [self.nodes[row] for row in feasible]
        keys = [each["topologyKey"] for each, _ in constraints]

        def complete(node):
            return not needs_all or all(key in node["metadata"]["labels"] for key in keys)

        scored = [node for node in nodes if complete(node)]
        raw = {node["metadata"]["name"]: 0.0 for node in scored}
        for each, selector in constraints:
            key = each["topologyKey"]
            values = {node["metadata"]["labels"].get(key, "") for node in scored}
            weight = math.log((len(scored) if key == HOST else len(values)) + 2)
            for node in scored:
                labels = node["metadata"]["labels"]
                if key not in labels:
                    continue
                counted = [node] if key == HOST else [
                    other for other in self.nodes
                    if other["metadata"]["labels"].get(key) == labels[key]
                    and complete(other) and self.is_included(each, other)
                ]  # fmt: skip
                number = sum(self.count(other, selector) for other in counted)
                raw[node["metadata"]["name"]] += float(number) * weight + float(each["maxSkew"] - 1)
        rounded = {name: math.floor(value + 0.5) for name, value in raw.items()}
        low, high = min(rounded.values(), default=0), max(rounded.values(), default=0)
        normalized = {name: 100 * (high + low - s) // high if high else 100 for name, s in rounded.items()}
        return [normalized.get(node["metadata"]["name"], 0) for node in nodes]

    def ports_filter(self):
        def ports(pod):
            listed = pod["spec"]["containers"][0].get("ports", ())
            return {(port.get("hostIP", "0.0.0.0"), port["protocol"], port["hostPort"]) for port in listed}

        def clash(one, other):
            return one[1:] == other[1:] and ("0.0.0.0" in (one[0], other[0]) or one[0] == other[0])

        return [
            "node(s) didn't have free ports for the requested pod ports"
            if any(
                clash(p, q) for p in ports(self.pod) for other in self.on[n["metadata"]["name"]] for q in ports(other)
            )
            else ""
            for n in self.nodes
        ]


def reasons(plugin, pod, table):
    """Return the reason for each node, marked with "!" if preemption cannot help; "" for allowed nodes."""
    verdict = plugin.filter(pod, table)
    if verdict is None:
        return [""] * len(table)
    unresolvable = np.zeros(len(table), bool) if verdict.unresolvable is None else verdict.unresolvable
    return [
        "" if allowed else verdict.reasons(row)[0] + ("!" if unresolvable[row] else "")
        for row, allowed in enumerate(verdict.allowed)
    ]


def normalized(plugin, pod, table, rows):
    """Return the scores of some nodes from 0 to 100."""
    if plugin.skips(pod):
        return [0] * len(rows)
    raw = plugin.prepare(table, MetricsTable.empty(table)).raw(pod, rows)
    return plugin.normalize(np.broadcast_to(raw, (1, len(rows)))[0].copy()).tolist()


def check(nodes, placed, pending, table, dice):
    """Compare every filter and score for a pending pod with the slow version."""
    slow, pod = Slow(nodes, placed, pending), Pod.from_k8s(pending)
    assert reasons(InterPodAffinity(), pod, table) == slow.affinity_filter()
    assert reasons(PodTopologySpread(), pod, table) == slow.spread_filter()
    assert reasons(NodePorts(), pod, table) == slow.ports_filter()
    rows = np.sort(np.array(dice.sample(range(len(nodes)), dice.randint(1, len(nodes)))))
    assert normalized(InterPodAffinity(), pod, table, rows) == slow.affinity_scores(rows)
    assert normalized(InterPodAffinity(50), pod, table, rows) == slow.affinity_scores(rows, 50)
    assert normalized(PodTopologySpread(), pod, table, rows) == slow.spread_scores(rows)


@pytest.mark.parametrize("seed", range(25))
def test_filters_and_scores_equal_the_slow_version(seed):
    """Filters with their reasons, and scores, equal those of plain loops, while pods and nodes come and go."""
    dice = random.Random(seed)
    nodes = [drawn_node(dice, number) for number in range(12)]
    table = NodeTable(map(Node.from_k8s, nodes))
    table.namespace_labels = NAMESPACES
    placed = []
    for step in range(30):
        pod = drawn_pod(dice, f"p{step}")
        node = dice.choice(nodes)["metadata"]["name"]
        placed.append((node, pod))
        table.assume(Pod.from_k8s(pod), node)
        if step % 7 == 6:
            _, gone = placed.pop(dice.randrange(len(placed)))
            table.remove(Pod.from_k8s(gone))
        if step == 15:  # a node leaves, and one joins
            name = nodes.pop(dice.randrange(len(nodes)))["metadata"]["name"]
            placed = [(other, each) for other, each in placed if other != name]
            table.remove_nodes([name])
            nodes.append(drawn_node(dice, 99))
            table.add_nodes([Node.from_k8s(nodes[-1])])
        if step % 3 == 0:
            check(nodes, placed, drawn_pod(dice, "pending", 0.6), table, dice)


def test_a_copy_of_the_table_has_an_index_of_its_own():
    """A pod on a copy changes neither the counts of the original nor those of another copy, and the reverse."""
    node = {"metadata": {"name": "n", "labels": {HOST: "n"}}}
    anti = {"podAntiAffinity": {REQUIRED: [{"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "p"}}}]}}

    def pod(name):
        spec = {"containers": [{"name": "c"}], "affinity": anti}
        return Pod.from_k8s({"metadata": {"name": name, "labels": {"app": "p"}}, "spec": spec})

    table = NodeTable.from_k8s([node])
    assert reasons(InterPodAffinity(), pod("x"), table) == [""]
    copy, other = table.copy(), table.copy()
    copy.assume(pod("one"), "n")
    assert reasons(InterPodAffinity(), pod("x"), copy) != [""]
    assert reasons(InterPodAffinity(), pod("x"), table) == reasons(InterPodAffinity(), pod("x"), other) == [""]
    table.assume(pod("two"), "n")
    table.assume(pod("three"), "n")
    copy.remove(pod("one"))
    assert reasons(InterPodAffinity(), pod("x"), copy) == [""]
    assert reasons(InterPodAffinity(), pod("x"), table) != [""]
    criteria = [table.selector_sources.criterion(pod("x").scheduling.required_anti_affinity_terms[0])]
    assert table.placed_rules.pods_matching(criteria).tolist() == [2]
    later = table.copy()
    later.assume(pod("four"), "n")
    assert later.placed_rules.pods_matching(criteria).tolist() == [3]
    assert table.placed_rules.pods_matching(criteria).tolist() == [2]


NAMED = "kubernetes.io/metadata.name"


@pytest.mark.parametrize("known", [{}, {"shared": {"team": "x"}}, {"shared": {NAMED: "shared"}}])
@pytest.mark.parametrize(
    ("requirement", "selected"),
    [
        ({"key": NAMED, "operator": "In", "values": ["shared"]}, [1, 0]),
        ({"key": NAMED, "operator": "NotIn", "values": ["shared"]}, [0, 1]),
        ({"key": NAMED, "operator": "Exists"}, [1, 1]),
        ({"key": NAMED, "operator": "DoesNotExist"}, [0, 0]),
    ],
)
@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_the_name_of_a_namespace_is_one_of_its_labels(kind, requirement, selected, known):
    """Terms of the pending pod and of placed pods find namespaces by name, though no labels of them are known."""
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "p"}},
            "namespaceSelector": {"matchExpressions": [requirement]}}  # fmt: skip

    def pod(name, namespace, **spec):
        metadata = {"name": name, "namespace": namespace, "labels": {"app": "p"}}
        return Pod.from_k8s({"metadata": metadata, "spec": {"containers": [{"name": "c"}], **spec}})

    asking = {"affinity": {kind: {REQUIRED: [term]}}}
    table = NodeTable.from_k8s([{"metadata": {"name": name, "labels": {HOST: name}}} for name in ("m", "n")])
    table.namespace_labels = known
    table.assume(pod("one", "shared"), "m")
    table.assume(pod("two", "other"), "n")
    criterion = table.selector_sources.criterion(next(iter(_terms(pod("x", "shop", **asking)))))
    assert table.placed_rules.pods_matching([criterion]).tolist() == selected
    table.assume(pod("three", "shop", **asking), "m")
    found = [len(table.placed_rules.terms_matching(pod("y", each), known)) for each in ("shared", "other")]
    assert found == selected


def _terms(pod):
    return (*pod.scheduling.required_affinity_terms, *pod.scheduling.required_anti_affinity_terms)


@pytest.mark.parametrize("known", [True, False])
def test_default_constraints_spread_the_pods_of_an_owner(known):
    """A pod of a ReplicaSet is spread by host name and zone; Services narrow the selector of the pods to count."""
    dice = random.Random(3)
    nodes = [drawn_node(dice, number) for number in range(10)]
    table = NodeTable(map(Node.from_k8s, nodes))
    owner = [{"kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}]
    labels = {"app": "p", "pod-template-hash": "1"}
    web = {"metadata": {"namespace": "a", "labels": labels, "ownerReferences": owner}, "spec": {"containers": []}}
    placed = []
    for number in range(20):
        each = {**web, "metadata": {**web["metadata"], "name": f"web-{number}"}}
        placed.append((dice.choice(nodes)["metadata"]["name"], each))
        table.assume(Pod.from_k8s(each), placed[-1][0])
    pending = {**web, "metadata": {**web["metadata"], "name": "web-x"}}
    if known:
        selector = Pod.from_k8s({"metadata": {"name": "s"}, "spec": {"containers": [], "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule",
             "labelSelector": {"matchLabels": labels}}]}}).scheduling.spread[0].selector  # fmt: skip
        table.selector_sources = SelectorSources(
            service_selectors={"a": [{"app": "p"}, {"app": "q"}]},
            owner_selectors={("a", "ReplicaSet", "web"): selector},
        )
    defaults = [({"maxSkew": 3, "topologyKey": HOST}, {"matchLabels": labels}),
                ({"maxSkew": 5, "topologyKey": ZONE}, {"matchLabels": labels})]  # fmt: skip
    rows = np.arange(len(nodes))
    expected = Slow(nodes, placed, pending).spread_scores(rows, defaults, needs_all=False)
    assert len(set(expected)) > 1
    assert normalized(PodTopologySpread(), Pod.from_k8s(pending), table, rows) == expected


def test_a_pod_that_nothing_selects_is_not_spread():
    """Without a Service and an owner there is no default constraint, and no node is preferred."""
    table = NodeTable.from_k8s([{"metadata": {"name": name, "labels": {HOST: name}}} for name in "ab"])
    table.assume(Pod(name="x", labels={"app": "p"}), "a")
    assert normalized(PodTopologySpread(), Pod(name="y", labels={"app": "p"}), table, np.arange(2)) == [0, 0]


def test_preferred_node_affinity_and_soft_taints():
    """Weights of matching terms are scaled to the highest; soft taints count against a node."""
    nodes = [{"metadata": {"name": str(n), "labels": {"rack": str(n)}}, "spec": {"taints": [
        {"key": "t", "effect": "PreferNoSchedule"}] * n}} for n in range(3)]  # fmt: skip
    table = NodeTable.from_k8s(nodes)
    terms = [
        {"weight": weight, "preference": {"matchExpressions": [{"key": "rack", "operator": "In", "values": [rack]}]}}
        for weight, rack in ((10, "1"), (30, "2"))
    ]
    spec = {"containers": [], "affinity": {"nodeAffinity": {PREFERRED: terms}}}
    pod = Pod.from_k8s({"metadata": {"name": "p"}, "spec": spec})
    assert normalized(NodeAffinity(), pod, table, np.arange(3)) == [0, 33, 100]
    assert normalized(TaintToleration(), pod, table, np.arange(3)) == [100, 50, 0]
    assert NodeAffinity().skips(Pod(name="q"))


def test_most_pods_share_one_object():
    """A pod without rules has the shared object, in all spellings of its manifest."""
    plain = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}}
    assert Pod.from_k8s(plain).scheduling is NO_RULES
    assert (
        Pod.from_k8s({"metadata": {"name": "p"}, "spec": {"init_containers": None, **plain["spec"]}}).scheduling
        is NO_RULES
    )
