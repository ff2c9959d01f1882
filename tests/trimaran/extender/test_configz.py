"""Comparison of a file with the configuration of a running kube-scheduler."""

import copy
import json
import re
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from support.refusals import check_refusal
from support.servers import run_server

from trimaran.cli.main import main
from trimaran.extender.configz import differences, read_configz

#: Responses of real kube-schedulers that were started with the file; 1.33 has no score by DynamicResources.
CONFIGZ = Path(__file__).parents[2] / "data/configz-1.37.json"
OLD_CONFIGZ = CONFIGZ.with_name("configz-1.33.json")
FILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: trimaran
  plugins:
    score:
      enabled:
      - {name: TaintToleration, weight: 30}
      - {name: NodeAffinity, weight: 20}
      - {name: NodeResourcesFit, weight: 10}
      - {name: VolumeBinding, weight: 10}
      - {name: PodTopologySpread, weight: 20}
      - {name: InterPodAffinity, weight: 20}
      - {name: NodeResourcesBalancedAllocation, weight: 10}
      - {name: ImageLocality, weight: 10}
      - {name: DynamicResources, weight: 20}
extenders:
- urlPrefix: http://127.0.0.1:2021
  prioritizeVerb: prioritize
  weight: 1
  httpTimeout: 500ms
  nodeCacheCapable: true
  ignorable: true
"""


@pytest.fixture
def document() -> dict[str, Any]:
    return yaml.safe_load(FILE)


@pytest.fixture
def running() -> dict[str, Any]:
    return copy.deepcopy(dict(read_configz(CONFIGZ.read_bytes())))


def test_the_file_that_runs_has_no_differences(document, running) -> None:
    """kube-scheduler reports all defaults, which the file does not name; they are no difference."""
    assert list(differences(document, running)) == []


def test_each_difference_is_named(document, running) -> None:
    """Weights, missing profiles, extenders and their fields are named with both values."""
    enabled = running["profiles"][0]["plugins"]["score"]["enabled"]
    enabled[0]["weight"] = 3
    del enabled[1]  # multiPoint has the default weight
    running["profiles"][0]["plugins"]["multiPoint"]["enabled"] = [
        each for each in running["profiles"][0]["plugins"]["multiPoint"]["enabled"] if each["name"] != "NodeAffinity"
    ]
    running["extenders"][0] |= {"filterVerb": "filter", "weight": 5}
    document["profiles"].append({"schedulerName": "other"})
    document["extenders"].append({"urlPrefix": "http://second"})
    running["profiles"].append({**running["profiles"][0], "schedulerName": "third"})
    running["extenders"].append({"urlPrefix": "http://third/", "prioritizeVerb": "prioritize", "weight": 1})
    assert list(differences(document, running)) == [
        "profile trimaran: TaintToleration has weight 30 in the file, weight 3 when running",
        "profile trimaran: NodeAffinity has weight 20 in the file, weight 0 when running",
        "profile other: the running kube-scheduler has no such profile",
        "profile third: only the running kube-scheduler has it",
        "extender http://127.0.0.1:2021: weight is 1 in the file, 5 when running",
        "extender http://127.0.0.1:2021: filterVerb is no such field in the file, filter when running",
        "extender http://second: the running kube-scheduler has no such extender",
        "extender http://third: only the running kube-scheduler has it",
    ]


@pytest.mark.parametrize("written", ["0.5s", "500000us", "500ms"])
def test_a_timeout_may_be_written_in_any_notation(document, running, written: str) -> None:
    """kube-scheduler reports durations in the shortest notation, whatever the file has."""
    document["extenders"][0]["httpTimeout"] = written
    assert list(differences(document, running)) == []
    document["extenders"][0]["httpTimeout"] = "400ms"
    theirs = running["extenders"][0]["httpTimeout"]
    (found,) = differences(document, running)
    assert re.fullmatch(f".*: httpTimeout .*400ms .*{theirs} .*", found)


def test_the_names_of_go_fields_are_read(document) -> None:
    """Up to 1.35 /configz has the names of Go's fields, and all fields without a value."""
    enabled = document["profiles"][0]["plugins"]["score"]["enabled"]
    enabled[:] = [each for each in enabled if each["name"] != "DynamicResources"]
    secure = {"urlPrefix": "https://e:2021", "enableHTTPS": True, "tlsConfig": {"caFile": "/etc/ca.crt"}}
    body = json.loads(OLD_CONFIGZ.read_bytes())
    running = read_configz(json.dumps(body).encode())
    assert list(differences(document, running, "1.33")) == []
    document["extenders"][0] |= secure
    (extender,) = body["componentconfig"]["Extenders"]
    tls = {"Insecure": False, "ServerName": "", "CertFile": "", "CAFile": "/etc/ca.crt", "CertData": None}
    extender |= {"URLPrefix": "https://e:2021", "EnableHTTPS": True, "TLSConfig": tls}
    assert list(differences(document, read_configz(json.dumps(body).encode()), "1.33")) == []
    enabled[0]["weight"] = 50
    (found,) = differences(document, read_configz(json.dumps(body).encode()), "1.33")
    assert re.fullmatch("profile trimaran: TaintToleration .* 50 .* 30 .*", found)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"componentconfig": {"kind": "KubeletConfiguration"}}'])
def test_another_response_is_refused(body: bytes) -> None:
    """A response that is not kube-scheduler's is an error."""
    with pytest.raises(ValueError, match="/configz"):
        read_configz(body)


def test_plugins_of_the_users_own_are_compared(document, running) -> None:
    """A plugin that trimaran does not know is compared like the others, if the user allows it."""
    for each in (document, running):
        each["profiles"][0]["plugins"]["score"]["enabled"].append({"name": "Mine", "weight": 20})
    assert list(differences(document, running, allow=["Mine"])) == []
    document["profiles"][0]["plugins"]["score"]["enabled"][-1]["weight"] = 10
    (found,) = differences(document, running, allow=["Mine"])
    assert re.fullmatch("profile trimaran: Mine .* 10 .* 20 .*", found)


def check(file: Path, source: str, **options: Any) -> Result:
    command = ["extender", "config", str(file), "--check", "--kubernetes-version", "1.37", "--configz", source]
    return CliRunner().invoke(main, command, **options)


def test_the_command_reads_a_url_a_file_or_standard_input(tmp_path: Path, running) -> None:
    """All three sources are compared; a difference ends with status 1, an unreadable source with status 2."""
    file = tmp_path / "stock.yaml"
    file.write_text(FILE)
    (tmp_path / "configz").write_bytes(CONFIGZ.read_bytes())
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, run_server(server):
        url = f"http://127.0.0.1:{server.server_port}/configz"
        assert check(file, url).exit_code == 0
        missing = check(file, f"{url}/missing")
    check_refusal(missing, "404")
    assert check(file, str(CONFIGZ)).exit_code == 0
    assert check(file, "-", input=CONFIGZ.read_text()).exit_code == 0
    running["extenders"] = []
    done = check(file, "-", input=json.dumps({"componentconfig": running}))
    assert (done.exit_code, done.stdout.startswith("extender http://127.0.0.1:2021: ")) == (1, True)
    for source in (url, str(tmp_path / "missing.json"), str(file)):
        check_refusal(check(file, source), source)
