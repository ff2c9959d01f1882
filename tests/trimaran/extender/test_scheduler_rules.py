"""Rules of kube-scheduler by version: set, read from the API server, or unknown, in which case no pod is scored."""

import logging
import threading

import pytest
import requests
from support.waiting import LIMIT_SECONDS

from scoring import Profile
from trimaran.extender.placement_predictor import InTreePlugins
from trimaran.extender.scheduler_rules import RulesByVersion


class ApiServer:
    """API server that reports a version, or fails with an error."""

    def __init__(self, reported):
        self.reported = reported
        self.asked = threading.Event()

    def send(self, method, path, deadline, body=None, content_type="application/json"):
        assert (method, path) == ("GET", "/version")
        self.asked.set()
        if isinstance(self.reported, Exception):
            raise self.reported
        return self.reported


def version(text):
    return {"major": "1", "minor": "37", "gitVersion": text}


def rules_of(kubernetes_version):
    return {kubernetes_version: InTreePlugins(Profile(()))}


@pytest.mark.parametrize("reported", ["v1.35.4", "v1.35.4-eks-1a2b3c4", "v1.35.2+k3s1", "v1.35.1-gke.1037000"])
def test_the_rules_are_those_of_the_api_servers_version(reported):
    """Without the setting the API server's version counts, in every distribution's form; first there are no rules."""
    rules = RulesByVersion(ApiServer(version(reported)), rules_of)
    assert rules.current is None
    assert rules.read()
    assert (list(rules.current.in_tree), rules.current.refusal) == (["1.35"], "")


def test_the_rules_follow_an_upgrade():
    """After an upgrade of the API server its new version counts; a failed read does not change the rules."""
    server = ApiServer(version("v1.36.3"))
    rules = RulesByVersion(server, rules_of)
    rules.read()
    server.reported = requests.ConnectionError("refused")
    assert not rules.read()
    assert list(rules.current.in_tree) == ["1.36"]
    server.reported = version("v1.37.2")
    rules.read()
    assert list(rules.current.in_tree) == ["1.37"]


@pytest.mark.parametrize(
    ("reported", "reason"),
    [
        (version("v1.38.0"), "has version v1.38.0, and rules are known for 1.33 to 1.37: upgrade trimaran, or set"),
        (version("v1.30.9"), "has version v1.30.9, and rules are known for 1.33 to 1.37"),
        (version("next"), "has version next, and rules are known for 1.33 to 1.37"),
        (requests.ConnectionError("refused"), "GET /version of the API server failed (refused): set"),
        ({"major": "1"}, "GET /version of the API server failed ('gitVersion'): set"),
        (["v1.37.2"], "GET /version of the API server failed"),
    ],
)
def test_without_known_rules_no_pod_is_scored(reported, reason):
    """The reason names the version, the known versions and the setting."""
    rules = RulesByVersion(ApiServer(reported), rules_of)
    rules.read()
    assert not rules.current.in_tree
    assert reason in rules.current.refusal
    assert "extender.kubernetes_version" in rules.current.refusal


@pytest.mark.parametrize(("server", "warnings"), [("v1.36.3", 0), ("v1.37.2", 1), ("v1.38.0", 1)])
def test_the_setting_decides_and_a_difference_is_logged_once(caplog, server, warnings):
    """The setting counts whatever the API server reports: kube-scheduler may be one minor version older."""
    rules = RulesByVersion(ApiServer(version(server)), rules_of, "1.36")
    assert list(rules.current.in_tree) == ["1.36"]
    with caplog.at_level(logging.WARNING):
        rules.read()
        rules.read()
    assert (list(rules.current.in_tree), rules.current.refusal) == (["1.36"], "")
    differences = [record for record in caplog.records if "extender.kubernetes_version" in record.message]
    assert [record.server for record in differences] == [server] * warnings


@pytest.mark.parametrize("configured", ["1.36", None])
def test_a_file_that_does_not_fit_the_version_is_not_followed(configured):
    """A configuration with which kube-scheduler of this version does not start is refused, with its error."""

    def refuse(kubernetes_version):
        raise ValueError(f"DynamicResources has no score in {kubernetes_version}")

    rules = RulesByVersion(ApiServer(version("v1.36.3")), refuse, configured)
    rules.read()
    refusal = "extender.config does not fit kube-scheduler 1.36: DynamicResources has no score in 1.36"
    assert (rules.current.refusal, rules.is_known) == (refusal, False)


def test_an_unreachable_api_server_does_not_change_the_setting():
    """With the setting the extender does not need to read the version."""
    rules = RulesByVersion(ApiServer(requests.ConnectionError("refused")), rules_of, "1.36")
    assert not rules.read()
    assert list(rules.current.in_tree) == ["1.36"]


def test_a_thread_reads_the_version():
    """The thread reads the version at once."""
    server = ApiServer(version("v1.37.2"))
    rules = RulesByVersion(server, rules_of)
    rules.start()
    assert server.asked.wait(LIMIT_SECONDS)
    rules.close()
