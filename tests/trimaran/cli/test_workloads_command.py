"""``trimaran workloads`` with a watcher over HTTP."""

import json
import re
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from support.bench import Api
from support.past_days import past_days
from support.ports import free_port
from support.servers import reply, run_prometheus, serving
from support.workload_rounds import measured

from trimaran.cli.main import main
from trimaran.workload_advice import cpu_quantity, memory_quantity

GIB, NOW, DAY = 2**30, 1.8e9, 86400.0
NEITHER: dict[str, str | None] = {"cpu_cores": None, "memory_bytes": None}
NOT_CHECKED = ("throttling", "HPA (no right to list horizontalpodautoscalers)")
LOWER = {"cpu_cores": "lower", "memory_bytes": "lower"}


def amounts(cpu: float, memory: float) -> dict[str, float]:
    """Return CPU in cores and memory in bytes, given in GiB."""
    return {"cpu_cores": cpu, "memory_bytes": memory * GIB}


def workload(name: str, kind: str = "Deployment", **changes: Any) -> dict[str, Any]:
    """Return a workload of 4 pods with one container: 1 core and 1 GiB requested, 345m and 512 MiB recommended."""
    times = {"first_seen": NOW - 10 * DAY, "last_seen": NOW, "pods": 4.0, "pod_minutes": 57600.0}
    container = {
        "name": "main", "role": "container", "requests": amounts(1, 1), "limits": amounts(0, 0),
        "recommended_limits": NEITHER, "use": amounts(0.25, 0.375), "deviation": amounts(0, 0),
        "cpu_cores_percentiles": {"50": 0.2, "90": 0.3}, "highest_memory_bytes": 0.4 * GIB,
        "recommended": amounts(0.345, 0.5), "verdict": LOWER, "reason": NEITHER, "wasted": amounts(3, 2.5),
        **times, "revision_since": NOW - DAY, **changes,
    }  # fmt: skip
    names = {"namespace": "shop", "kind": kind, "name": name}
    use = {"use": amounts(0.25, 0.375), "deviation": amounts(0, 0)}
    return {**names, **times, "last_seen": container["last_seen"], **use, "containers": [container]}


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Return a function that serves these workloads in one page, and returns the address."""
    opened = []

    def start(*workloads: dict[str, Any], not_checked: tuple[str, ...] = NOT_CHECKED, **more: Any) -> str:
        page = {"timestamp": NOW, "total": len(workloads), "not_checked": not_checked, "workloads": workloads}
        body = json.dumps({**page, **more}).encode()
        server = serving(lambda handler: reply(handler, body))
        opened.append(server)
        return server.__enter__().url

    yield start
    for server in opened:
        server.__exit__(None, None, None)


@pytest.fixture
def learned() -> Iterator[tuple[Api, str]]:
    """Serve the API of a watcher that has learned from rounds of nine days; yield it and its address."""
    api = Api()
    for number in range(18):
        api.watcher.workloads.observe(*measured(number))

    def answer(handler: BaseHTTPRequestHandler) -> None:
        response = api.get(handler.path, Accept=handler.headers["Accept"])
        reply(handler, response.data, response.status_code)

    with serving(answer) as fake:
        yield api, fake.url


def run(*arguments: str) -> Result:
    """Call ``trimaran workloads``."""
    return CliRunner().invoke(main, ["workloads", *arguments])


def cells(line: str) -> list[str]:
    """Return the cells of a line of a table."""
    return re.split(r"\s{2,}", line)


def test_a_row_has_the_request_and_the_recommendation(serve: Callable[..., str]) -> None:
    """The table has the change of each request and the waste; the totals are of all pods; one line is not checked."""
    result = run("--watcher", serve(workload("web")))
    assert result.exit_code == 0, result.output
    header, row, empty, total, last = result.stdout.splitlines()
    assert cells(header) == [
        "NAMESPACE", "WORKLOAD", "CONTAINER", "PODS", "CPU", "MEMORY", "WASTED CPU", "WASTED GIB", "REASON",
    ]  # fmt: skip
    assert cells(row) == ["shop", "Deployment/web", "main", "4", "1 → 345m", "1Gi → 512Mi", "3.00", "2.50", "-"]
    assert empty == ""
    assert re.findall(r"[\d.]+", total) == ["1", "4.0", "4.0", "1.0", "1.5", "2.6", "2.0"]
    assert last == f"not checked: {'; '.join(NOT_CHECKED)}"


def test_only_what_was_not_checked_is_listed(serve: Callable[..., str]) -> None:
    """A watcher that checked everything has no line about what was not checked, in the table and in patches."""
    address = serve(workload("web"), not_checked=())
    for arguments in ((), ("--patch",)):
        assert "not checked" not in run("--watcher", address, *arguments).stdout


@pytest.mark.parametrize("known", [0, 1])
def test_what_was_never_measured_is_listed(serve: Callable[..., str], known: int) -> None:
    """Each container without a measurement has a line with the reason, at most 20, also if there is nothing else."""
    lost = [
        {"namespace": "shop", "kind": "StatefulSet", "name": f"loop-{n}", "container": "main", "pods": 1 + n,
         "reason": "it ended 2 minutes ago, before it was measured"}
        for n in range(22)
    ]  # fmt: skip
    result = run("--watcher", serve(*[workload("web")] * known, not_checked=(), not_measured=lost))
    assert result.exit_code == 0, result.output
    lines = [line for line in result.stdout.splitlines() if line.startswith("not measured")]
    why = "it ended 2 minutes ago, before it was measured"
    assert lines[:2] == [f"not measured: shop StatefulSet/loop-0 main (1 pod): {why}",
                         f"not measured: shop StatefulSet/loop-1 main (2 pods): {why}"]  # fmt: skip
    assert lines[20:] == ["not measured: 2 more containers (-o json has all)"]


def test_wide_adds_the_measurements(serve: Callable[..., str]) -> None:
    """``-o wide`` adds use, its percentile, highest memory and history; "-" and no use if never measured."""
    result = run("--watcher", serve(workload("web")), "-o", "wide")
    header, row, *_ = result.stdout.splitlines()
    wide = dict(zip(cells(header), cells(row), strict=True))
    assert [wide[name] for name in ("CPU USE", "MEMORY USE", "CPU P90", "HIGHEST MEMORY", "HISTORY")] == [
        "250m", "384Mi", "300m", "410Mi", "10.0d",
    ]  # fmt: skip
    never = workload("loop", cpu_cores_percentiles={"90": 0.0}, highest_memory_bytes=0.0)
    header, row, _, total, *_ = run("--watcher", serve(never), "-o", "wide").stdout.splitlines()
    wide = dict(zip(cells(header), cells(row), strict=True))
    assert "0.0 CPUs and 0.0 GiB used" in total
    assert {wide[name] for name in ("CPU USE", "MEMORY USE", "CPU P90", "HIGHEST MEMORY")} == {"-"}


def test_a_reason_is_printed_instead_of_a_change(serve: Callable[..., str]) -> None:
    """A request that is kept has no change; a reason of one resource names it; without a request there is a dash."""
    short = {"cpu_cores": "history of 2.0 days, below 7", "memory_bytes": None}
    keep = {"cpu_cores": "keep", "memory_bytes": "lower"}
    blocked = workload("a", recommended=amounts(1, 0.5), verdict=keep, reason=short)
    unset = dict.fromkeys(NEITHER, "no request is set")
    absent = workload("b", requests=amounts(0, 0), verdict=dict.fromkeys(NEITHER, "raise"), reason=unset)
    unknown = workload("c", recommended=NEITHER, verdict=NEITHER, wasted=NEITHER, cpu_cores_percentiles={"90": None})
    result = run("--watcher", serve(blocked, absent, unknown), "--sort", "name")
    _, *rows = [cells(line) for line in result.stdout.splitlines()[:4]]
    assert [row[4:6] for row in rows] == [["1", "1Gi → 512Mi"], ["- → 345m", "- → 512Mi"], ["1", "1Gi"]]
    assert [row[8] for row in rows] == ["CPU: history of 2.0 days, below 7", "no request is set", "-"]
    assert rows[2][6:8] == ["-", "-"]


@pytest.mark.parametrize(("sort", "names"), [("cpu", "bca"), ("memory", "abc"), ("name", "abc")])
def test_the_workloads_with_the_most_waste_are_first(serve: Callable[..., str], sort: str, names: str) -> None:
    """``--sort`` orders by unused CPU, unused memory or name."""
    wasted = {"a": amounts(1, 9), "b": amounts(3, 5), "c": amounts(2, 1)}
    address = serve(*(workload(name, wasted=each) for name, each in wasted.items()))
    result = run("--watcher", address, "--sort", sort)
    assert "".join(cells(line)[1][-1] for line in result.stdout.splitlines()[1:4]) == names


def test_pods_that_ended_do_not_count(serve: Callable[..., str]) -> None:
    """A workload without pods in the newest rounds has 0 pods and no part in the totals."""
    ended = workload("nightly", "CronJob", last_seen=NOW - 3600, wasted=amounts(0, 0))
    result = run("--watcher", serve(ended))
    assert cells(result.stdout.splitlines()[1])[1:4] == ["CronJob/nightly", "main", "0"]
    assert "0.0 CPUs and 0.0 GiB requested" in result.stdout


def test_containers_that_the_pods_lost_are_left_out(serve: Callable[..., str]) -> None:
    """A container that the newest pods of a workload do not have is not shown."""
    web = workload("web")
    web["containers"].append({**deepcopy(web["containers"][0]), "name": "before", "last_seen": NOW - DAY})
    result = run("--watcher", serve(web))
    assert "main" in result.stdout
    assert "before" not in result.stdout


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_documents_have_totals_and_all_workloads(serve: Callable[..., str], form: str) -> None:
    """JSON and YAML have the totals, the list of what was not checked, and the watcher's workloads, sorted."""
    items = [workload("a"), workload("b", wasted=amounts(9, 9))]
    result = run("--watcher", serve(*items), "-o", form)
    document = yaml.safe_load(result.stdout)
    assert document["workloads"] == items[::-1]
    assert document["total"]["could_be_freed"] == pytest.approx(amounts(5.24, 4))
    assert document["not_checked"] == list(NOT_CHECKED)


def test_all_pages_of_a_real_watcher_are_read(learned: tuple[Api, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The command pages through all workloads of a namespace, and shows what the watcher's routes return."""
    monkeypatch.setattr("client.service._WORKLOADS_PER_PAGE", 7)
    api, address = learned
    result = run("--watcher", address, "--namespace", "shop", "-o", "json")
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)["workloads"]
    served = api.get("/workloads?limit=5000").json["workloads"]
    assert len(shown) == len(api.watcher.workloads.table()) > 14
    assert sorted(shown, key=lambda each: each["name"]) == sorted(served, key=lambda each: each["name"])
    assert " → " in run("--watcher", address).stdout


@pytest.mark.server
def test_a_provider_and_its_past_need_no_watcher(tmp_path: Path) -> None:
    """Pods are measured once, their past days are read, and use is that of the pods that run."""
    with run_prometheus(tmp_path, past_days(int(time.time()) - 5)) as url:
        provider = ("--provider", "Prometheus", "--address", url)
        result = run(*provider, "--last", "3d", "-o", "json")
        nothing = run(*provider, "--namespace", "other")
    assert result.exit_code == 0, result.output
    assert "3 of 3 days are read" in result.stderr
    web, job = sorted(json.loads(result.stdout)["workloads"], key=lambda each: str(each["kind"]), reverse=True)
    assert (web["name"], web["pods"], job["name"], job["pods"]) == ("web", 1, "nightly", 0)
    assert web["use"]["cpu_cores"] == pytest.approx(0.2, rel=0.01)
    assert web["containers"][0]["pod_minutes"] > 1440
    assert (nothing.exit_code, "'other'" in nothing.stderr) == (1, True)


def test_a_provider_that_fails_is_named() -> None:
    """No pod can be measured: status 1 and the reason; a watcher and a provider together are a usage error."""
    address = f"http://127.0.0.1:{free_port()}"
    result = run("--provider", "Prometheus", "--address", address)
    assert (result.exit_code, address.removeprefix("http://") in result.stderr) == (1, True)
    assert run("--watcher", address, "--last", "7d").exit_code == 2


def test_an_unknown_namespace_is_named(learned: tuple[Api, str]) -> None:
    """A namespace without workloads is status 1, and the message names it."""
    result = run("--watcher", learned[1], "--namespace", "other")
    assert result.exit_code == 1
    assert "'other'" in result.stderr


def test_no_namespace_is_named_without_the_option(serve: Callable[..., str]) -> None:
    """A watcher without any workload is status 1, and the message names no namespace."""
    result = run("--watcher", serve())
    assert (result.exit_code, "namespace" in result.stderr) == (1, False)


def test_a_note_names_what_the_caller_may_not_see(serve: Callable[..., str]) -> None:
    """A message on standard error names what the watcher leaves out by the rights of the caller, before the table."""
    result = run("--watcher", serve(workload("web"), omitted="others"))
    assert (result.exit_code, result.stderr) == (0, "trimaran: others\n")


def test_without_measurements_the_reason_is_one_line() -> None:
    """A watcher that has not measured pods is status 1, with its reason in one line."""
    api = Api()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        response = api.get(handler.path)
        reply(handler, response.data, response.status_code)

    with serving(answer) as fake:
        result = run("--watcher", fake.url)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert re.fullmatch(r"trimaran: the watcher at \S+: .*\n", result.stderr)


def test_an_older_watcher_is_recognized(serve: Callable[..., str]) -> None:
    """A watcher that serves workloads without recommendations is status 1, with a hint at its version."""
    old = workload("web")
    del old["containers"][0]["recommended"]
    result = run("--watcher", serve(old))
    assert result.exit_code == 1
    assert "is it an older version?" in result.stderr


@pytest.mark.parametrize("value", ["nan", -1, 1e300, None, [], {}])
@pytest.mark.parametrize("form", ["text", "wide", "json"])
def test_impossible_amounts_are_an_error(serve: Callable[..., str], value: object, form: str) -> None:
    """Amounts that are not finite, negative, enormous or no numbers are status 1, without a traceback."""
    result = run("--watcher", serve(workload("web", use={"cpu_cores": value, "memory_bytes": GIB})), "-o", form)
    assert result.exit_code == 1
    assert result.stderr.startswith("trimaran: the watcher ")


def test_names_cannot_control_the_terminal(serve: Callable[..., str]) -> None:
    """Control characters in names and reasons are escaped, in tables, documents and patches."""
    evil = "x\x1b[2J\ry\nforged: line"
    reason = {"cpu_cores": evil, "memory_bytes": None}
    item = workload(evil, reason=reason, verdict=dict.fromkeys(NEITHER, "raise"))
    item["containers"][0]["name"] = evil
    address = serve(item)
    for arguments in ((), ("-o", "wide"), ("-o", "json"), ("-o", "yaml"), ("--patch",)):
        output = run("--watcher", address, *arguments).output
        assert "forged" in output
        assert "\x1b" not in output
        assert not any(line.startswith("forged") for line in output.splitlines())


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("--watcher", "ftp://a"), 2),
        (("--sort", "age"), 2),
        (("--watcher", "http://a", "--patch", "-o", "json"), 2),
        (("--watcher", "http://a", "--in-place"), 2),
    ],
)
def test_options_that_cannot_be_used_are_status_2(arguments: tuple[str, ...], status: int) -> None:
    """An invalid address and an unknown order are status 2."""
    assert run(*arguments).exit_code == status


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[]", "did not return workloads"),
        (b"{}", "did not return workloads"),
        (b'{"timestamp": 1, "workloads": [], "next": "a/b/c"}', "a page is empty, or names itself as the next page"),
    ],
)
def test_bad_pages_end_the_command(body: bytes, message: str) -> None:
    """A body that is not a page, or pages that would never end, are status 1."""
    with serving(lambda handler: reply(handler, body)) as fake:
        result = run("--watcher", fake.url)
    assert result.exit_code == 1
    assert message in result.stderr


# -- patches ------------------------------------------------------------------------------------------------------


def patches(*arguments: str) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the comments of ``--patch``, and its documents."""
    result = run("--patch", *arguments)
    assert result.exit_code == 0, result.output
    comments = [line.removeprefix("# ") for line in result.stdout.splitlines() if line.startswith("#")]
    return comments, [each for each in yaml.safe_load_all(result.stdout) if each]


def test_a_patch_changes_the_requests_of_the_template(serve: Callable[..., str]) -> None:
    """Each controller has a patch of its own template; comments have the command, and what was not checked."""
    kinds = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "CronJob": "batch/v1"}
    address = serve(*(workload(f"a-{kind.lower()}", kind) for kind in kinds))
    comments, documents = patches("--watcher", address, "--sort", "name")
    assert comments[0].endswith("Nothing was applied.")
    assert f"not checked: {'; '.join(NOT_CHECKED)}" in comments
    template = {
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "345m", "memory": "512Mi"}}}]}
    }
    for kind, document in zip(sorted(kinds), documents, strict=True):
        name = f"a-{kind.lower()}"
        spec = {"template": template}
        assert document == {
            "apiVersion": kinds[kind],
            "kind": kind,
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"jobTemplate": {"spec": spec}} if kind == "CronJob" else spec,
        }
        assert f"kubectl patch {kind.lower()} {name} --namespace shop --patch-file FILE" in comments


def test_no_patch_has_a_request_with_a_reason(serve: Callable[..., str]) -> None:
    """Only resources to change without a reason are in patches; other kinds, and workloads that ended, have none."""
    unset = workload("unset", verdict=dict.fromkeys(NEITHER, "raise"), reason={**NEITHER, "cpu_cores": "a reason"})
    kept = workload("kept", verdict=dict.fromkeys(NEITHER, "keep"))
    ended = {"last_seen": NOW - DAY}
    others = [workload("b", "Rollout"), workload("c", **ended), kept]
    address = serve(unset, *others, workload("nightly", "CronJob", **ended))
    _, documents = patches("--watcher", address, "--sort", "name")
    assert [each["metadata"]["name"] for each in documents] == ["nightly", "unset"]
    (container,) = documents[1]["spec"]["template"]["spec"]["containers"]
    assert container == {"name": "main", "resources": {"requests": {"memory": "512Mi"}}}
    comments, documents = patches("--watcher", serve(*others))
    assert documents == []
    assert "Deployment, StatefulSet, DaemonSet or CronJob" in comments[-1]


def test_a_name_cannot_leave_its_comment(serve: Callable[..., str]) -> None:
    """A name from the watcher is quoted for the shell, and a line break in it is escaped."""
    address = serve(workload("a; rm -rf b\nspec: {}"))
    comments, (document,) = patches("--watcher", address)
    assert document["metadata"]["name"] == "a; rm -rf b\nspec: {}"
    assert "kubectl patch deployment 'a; rm -rf b\\nspec: {}' --namespace shop --patch-file FILE" in comments


def test_limits_are_in_the_patch_and_in_its_comments(serve: Callable[..., str]) -> None:
    """The limit of a raised request is patched, that of a lower one stays; a comment says which."""
    limits = amounts(2, 2)
    verdict = {"cpu_cores": "raise", "memory_bytes": "lower"}
    item = workload(
        "web", limits=limits, recommended_limits=amounts(2.4, 2), verdict=verdict, recommended=amounts(1.2, 0.5)
    )
    comments, (document,) = patches("--watcher", serve(item))
    (container,) = document["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {"requests": {"cpu": "1200m", "memory": "512Mi"}, "limits": {"cpu": "2400m"}}
    assert any(each.startswith("cpu limit of main ") and each.endswith("2 → 2400m") for each in comments)
    assert any(each.startswith("memory limit of main ") and each.endswith("2Gi") for each in comments)


def test_init_containers_are_noted_and_sidecars_are_patched(serve: Callable[..., str]) -> None:
    """A sidecar is patched among the init containers; any other init container has a comment instead."""
    web = workload("web", role="sidecar")
    web["containers"].append({**deepcopy(web["containers"][0]), "name": "setup", "role": "init"})
    comments, (document,) = patches("--watcher", serve(web))
    spec = document["spec"]["template"]["spec"]
    assert [each["name"] for each in spec["initContainers"]] == ["main"]
    assert "containers" not in spec
    assert any(each.startswith("not patched: setup ") for each in comments)
    comments, documents = patches("--watcher", serve(workload("web", role="init")))
    assert (comments[-3], documents) == ("Deployment web in shop", [])
    assert comments[-2].startswith("not patched: main ")


@pytest.mark.parametrize("has_resize", [False, True])
def test_resizes_need_the_subresource(serve: Callable[..., str], tmp_path: Path, has_resize: bool) -> None:
    """An API server without pods/resize is status 1, with its version and the remedy; with it, pods are listed."""
    served = [{"name": "pods"}, *([{"name": "pods/resize"}] if has_resize else [])]
    answers = {
        "/api/v1": {"resources": served}, "/version": {"gitVersion": "v1.31.2"},
        "/api/v1/pods": {"items": [], "metadata": {"resourceVersion": "1"}},
    }  # fmt: skip

    def answer(handler: BaseHTTPRequestHandler) -> None:
        path, _, query = handler.path.partition("?")
        known = path in answers and "watch" not in query
        reply(handler, json.dumps(answers.get(path, {})).encode(), 200 if known else 403)

    with serving(answer) as fake:
        cluster = {"name": "c", "cluster": {"server": fake.url}}
        context = {"name": "c", "context": {"cluster": "c", "user": "c"}}
        config = {"clusters": [cluster], "contexts": [context], "users": [{"name": "c", "user": {}}]}
        (tmp_path / "config").write_text(json.dumps({**config, "current-context": "c"}))
        options = ("--patch", "--in-place", "--kube-config", str(tmp_path / "config"))
        result = run("--watcher", serve(workload("web")), *options)
    if has_resize:
        assert result.exit_code == 0, result.output
        assert result.stdout.splitlines()[-1] == "# No request of a running pod is to be changed."
    else:
        assert result.exit_code == 1
        assert "v1.31.2" in result.stderr


# -- amounts ------------------------------------------------------------------------------------------------------


def test_amounts_are_kubernetes_quantities() -> None:
    """Amounts are written in whole cores or millicores, and in Gi or Mi, rounded up."""
    assert [cpu_quantity(each) for each in (0.345, 2.0, 1.05, 0.0101)] == ["345m", "2", "1050m", "11m"]
    assert [memory_quantity(each * GIB) for each in (0.5, 2, 1.0625, 1e-9)] == ["512Mi", "2Gi", "1088Mi", "1Mi"]
