"""Capacity, requests and use of all pods together: from each round to the store, the API and the client."""

from contextlib import ExitStack, closing
from dataclasses import replace

import numpy as np
import pytest
from support.bench import Api
from support.fake_kubernetes import TOKEN, run_fake_kubernetes
from support.ports import nowhere
from support.workload_rounds import STEP, measured

from runtime.http.gather import Deadline
from runtime.kubernetes.api import ApiServerConfig, KubernetesApi
from watcher.errors import ProviderError
from watcher.store import Store
from watcher.usage.array_bytes import pack
from watcher.usage.learn.cluster_totals import PART, TotalsHistory
from watcher.usage.learn.learner_service import LearnerService
from watcher.usage.sources.kube_state_metrics import KubeStatePods
from watcher.usage.sources.node_capacity import NodeCapacity
from watcher.wire import WireError
from watcher.wire.workloads import decode_totals

CAPACITY = (640.0, 2.0**42)


def test_a_round_adds_what_all_pods_request_and_use():
    """The sums are those over all containers of all running pods, with the capacity; an unknown one is NaN."""
    history = TotalsHistory()
    use, pods = measured(0)
    history.add(use, pods, CAPACITY)
    history.add(*measured(1), None)
    totals = history.totals()
    containers = [each for pod in pods.values() for each in pod.template.containers]
    assert totals.requested[0, 0] == pytest.approx(sum(each.cpu_request_milli or 0 for each in containers) / 1000)
    assert totals.requested[1, 0] == sum(each.memory_request_bytes or 0 for each in containers)
    assert totals.used[:, 0] == pytest.approx([use.cpu_cores.sum(), use.memory_bytes.sum()])
    assert totals.capacity[:, 0].tolist() == list(CAPACITY)
    assert np.isnan(totals.capacity[:, 1]).all()
    assert totals.times.tolist() == [use.timestamp, use.timestamp + STEP]


def test_a_day_of_rounds_is_kept_in_order():
    """Rounds of a day ago are dropped, and so are later ones that a clock that was set back contradicts."""
    history = TotalsHistory()
    start = measured(0)[0].timestamp
    for number in range(4):
        history.add(*measured(number), CAPACITY)
    assert history.totals().times.tolist() == [start + 2 * STEP, start + 3 * STEP]
    history.add(*measured(2), CAPACITY)
    assert history.totals().times.tolist() == [start + 2 * STEP]
    history.add(replace(measured(3)[0], timestamp=start + 2 * STEP + 86400), {}, CAPACITY)  # exactly a day later
    assert history.totals().times.tolist() == [start + 2 * STEP + 86400]


def test_totals_survive_a_restart_with_the_learner(tmp_path):
    """Another watcher on the same file begins with the stored rounds; damaged or other bytes are no totals."""
    store = Store(tmp_path / "store.db")
    learning = LearnerService(store, "x")
    for number in range(2):
        learning.observe(*measured(number), CAPACITY)
    store.close()
    with closing(Store(tmp_path / "store.db")) as reopened:
        again = LearnerService(reopened, "x")
        assert again.totals().capacity.tobytes() == learning.totals().capacity.tobytes()
        assert again.totals().times.tolist() == learning.totals().times.tolist()
    for damaged in (b"", b"x" * 50, pack(rows=np.zeros((3, 2))), pack(other=np.zeros(3))):
        assert not len(TotalsHistory.of_parts({PART: damaged}).totals())


def test_the_api_serves_the_totals():
    """The route has the learner's totals; without any round the answer is 404 with the reason; a query is refused."""
    api = Api()
    assert api.get("/workloads/totals").json["error"]["code"] == "no_metrics"
    api.watcher.workloads.observe(*measured(0), CAPACITY)
    api.watcher.workloads.observe(*measured(1), None)
    decoded, known = decode_totals(api.get("/workloads/totals").data), api.watcher.workloads.totals()
    for name in ("times", "capacity", "requested", "used"):
        assert getattr(decoded, name) == pytest.approx(getattr(known, name), nan_ok=True)
    assert api.get("/workloads/totals?namespace=shop").status_code == 400


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"times": [1], "capacity": {"cpu_cores": [1]}}', b"nonsense"])
def test_other_bodies_are_no_totals(body):
    """A body of another kind is an error of the wire, not a traceback."""
    with pytest.raises(WireError, match="totals"):
        decode_totals(body)


def test_capacity_is_the_sum_of_what_is_allocatable(tmp_path):
    """The nodes are listed once in a quarter of an hour; amounts that cannot be read count as 0."""
    now = [0.0]
    with ExitStack() as opened:
        fake = opened.enter_context(run_fake_kubernetes(tmp_path))
        amounts = ({"cpu": "7500m", "memory": "30Gi"}, {"cpu": "8", "memory": "32Gi"}, {"cpu": "many"}, None)
        for number, allocatable in enumerate(amounts):
            fake.put("nodes", {"metadata": {"name": f"n-{number}"}, "status": {"allocatable": allocatable}})
        config = ApiServerConfig(address=fake.url, token=TOKEN, ca_file=fake.ca_file)
        api = opened.enter_context(closing(KubernetesApi(config)))
        capacity = NodeCapacity(api, lambda: now[0])
        assert capacity.total(Deadline.after(10)) == (15.5, 62 * 2**30)
        fake.put("nodes", {"metadata": {"name": "n-9"}, "status": {"allocatable": amounts[1]}})
        assert capacity.total(Deadline.after(10)) == (15.5, 62 * 2**30)
        now[0] = 901.0
        assert capacity.total(Deadline.after(10)) == (23.5, 94 * 2**30)


def test_unreadable_nodes_are_an_error_that_is_kept(tmp_path):
    """Without an API server the error names its address, and the next round does not ask again."""
    api = KubernetesApi(ApiServerConfig(address=nowhere(), token=TOKEN))
    now = [0.0]
    capacity = NodeCapacity(api, lambda: now[0])
    for _ in range(2):
        with pytest.raises(ProviderError, match=r"Kubernetes at http://127\.0\.0\.1"):
            capacity.total(Deadline.after(1))


def test_capacity_comes_from_kube_state_metrics():
    """Both resources are asked for, with the user's matchers; without the series the capacity is unknown."""
    asked = []

    def series(promql, _deadline):
        asked.append(promql)
        return [({}, 64.0 if 'resource="cpu"' in promql else 2.0**38)]

    assert KubeStatePods(series, 'cluster="a"').capacity(Deadline.after(1)) == (64.0, 2.0**38)
    assert all('cluster="a"' in promql and "kube_node_status_allocatable" in promql for promql in asked)
    assert KubeStatePods(lambda *_: [], "").capacity(Deadline.after(1)) is None
