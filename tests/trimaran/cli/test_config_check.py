"""``trimaran config check``: check of a scheduler configuration."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.refusals import check_refusal

from trimaran.cli.main import main

GOOD = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles:
- schedulerName: trimaran
  plugins:
    score:
      disabled: [{name: "*"}]
      enabled: [{name: TargetLoadPacking, weight: 3}]
  pluginConfig:
  - name: TargetLoadPacking
    args: {targetUtilization: 60, watcherAddress: "http://trimaran:2020/compat"}
"""


def check(tmp_path: Path, text: str, *options: str) -> Result:
    """Write a file, and check it."""
    file = tmp_path / "scheduler.yaml"
    file.write_text(text)
    return CliRunner().invoke(main, ["config", "check", *options, str(file)])


def test_a_valid_configuration_lists_ignored_keys_and_weights(tmp_path):
    """Ignored keys, with --all the others too, come before each profile with its weights; the status is 0."""
    result = check(tmp_path, GOOD)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[-2] == "trimaran: 3 x TargetLoadPacking"
    assert lines[-1].endswith("scheduler.yaml is valid")
    assert [line for line in lines if line.startswith("ignored") and "leaderElection (line 4)" in line]
    assert not [line for line in lines if line.startswith("honored")]
    lines = check(tmp_path, GOOD, "--all").output.splitlines()
    assert [line for line in lines if line.startswith("honored") and "targetUtilization" in line]


def test_a_misspelled_key_is_a_warning(tmp_path):
    """An unknown key is listed with its line and a suggestion, and the status is 1."""
    result = check(tmp_path, GOOD.replace("targetUtilization", "targetUtilisation"))
    assert result.exit_code == 1
    assert "TargetLoadPackingArgs.targetUtilisation (line 13): " in result.output
    assert "targetUtilization?" in result.output
    assert result.output.splitlines()[-2] == "trimaran: 3 x TargetLoadPacking"
    assert result.output.splitlines()[-1].endswith("1 unknown key")
    ours = users(check(tmp_path, GOOD.replace("targetUtilization", "targetUtilisation")))
    ignored = "it ignores TargetLoadPackingArgs.targetUtilisation"
    assert ours["kube-scheduler with trimaran's extender"] == f"yes, converted by trimaran extender config; {ignored}"
    assert ours["trimaran score"] == f"yes; {ignored}"
    assert ours["trimaran scheduler"] == "no: it refuses TargetLoadPackingArgs.targetUtilisation"
    in_tree = GOOD.replace("TargetLoadPacking\n    args: {", "NodeResourcesFit\n    args: {foo: 1}\n    #")
    in_tree = in_tree.replace('disabled: [{name: "*"}]', "disabled: []")
    refused = users(check(tmp_path, in_tree))["kube-scheduler with trimaran's extender"]
    assert refused == "no: it refuses NodeResourcesFitArgs.foo"


def test_an_address_without_compat_is_a_warning(tmp_path):
    """A watcherAddress without /compat is a warning with the line and the right address, and status 1."""
    result = check(tmp_path, GOOD.replace("2020/compat", "2020/"))
    assert result.exit_code == 1
    warning = next(line for line in result.output.splitlines() if line.startswith("warning"))
    assert "profiles[0].pluginConfig[0].args.watcherAddress (line 13)" in warning
    assert warning.endswith("use http://trimaran:2020/compat")
    assert result.output.splitlines()[-1].endswith("1 watcherAddress without /compat")


def test_lines_are_those_of_the_right_profile(tmp_path):
    """A plugin's arguments in the second profile are reported with their own lines."""
    first = GOOD[GOOD.index("- schedulerName") :]
    second = first.replace("trimaran\n", "second\n").replace("Utilization", "Utilisation")
    result = check(tmp_path, GOOD + second)
    assert "TargetLoadPackingArgs.targetUtilisation (line 21): " in result.output


def test_the_kubernetes_version_is_a_choice(tmp_path):
    """Known versions are accepted, also in the form of the API server; others are refused."""
    assert check(tmp_path, GOOD, "--kubernetes-version", "v1.34.2").exit_code == 0
    check_refusal(check(tmp_path, GOOD, "--kubernetes-version", "1.12"), "1.12")
    newest = "trimaran: no --kubernetes-version: using the rules of kube-scheduler 1.37\n"
    assert check(tmp_path, GOOD).stderr == newest


def test_the_check_follows_the_kubernetes_version(tmp_path):
    """A plugin without a score in the version, with which kube-scheduler does not start, is an error with its line."""
    text = GOOD.replace("TargetLoadPacking", "DynamicResources", 1)
    assert check(tmp_path, text, "--kubernetes-version", "1.35").exit_code == 0
    check_refusal(check(tmp_path, text, "--kubernetes-version", "1.34"), "DynamicResources")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            GOOD.replace("targetUtilization: 60", "targetUtilization: 400"),
            ", line 13: TargetLoadPackingArgs.targetUtilization: ",
        ),
        (
            "a: &a [x, x]\nb: &b [*a, *a, *a, *a]\n" + "\n".join(f"c{n}: [*b, *b, *b]" for n in range(50)),
            "KubeScheduler",
        ),
        (GOOD.replace("kubescheduler.config.k8s.io/v1", "kubescheduler.config.k8s.io/v9"), "apiVersion"),
        ("a: [", "while parsing"),
        ("", "KubeSchedulerConfiguration"),
        ("- 1", "KubeSchedulerConfiguration"),
    ],
)
def test_an_invalid_configuration_names_the_key(tmp_path, text, words):
    """An invalid file is one message with the key's path, and status 2."""
    check_refusal(check(tmp_path, text), words)


def test_a_missing_file_is_named():
    """A missing file is named in the message, with status 2."""
    check_refusal(CliRunner().invoke(main, ["config", "check", "/no/such/file"]), "/no/such/file")


def users(result: Result) -> dict[str, str]:
    """Return by whom the output of a check says that the file can be used."""
    lines = result.output.splitlines()
    table = lines[next(n for n, line in enumerate(lines) if line.startswith("CAN BE USED BY")) + 1 :]
    rows = (line.partition("   ") for line in table)
    return {name: verdict.strip() for name, space, verdict in rows if space}


def test_a_misspelt_plugin_is_refused(tmp_path):
    """kube-scheduler does not start with an unknown plugin: the error has its line and the right name."""
    wrong = GOOD.replace("name: TargetLoadPacking, weight", "name: TargetLoadPackng, weight")
    result = check(tmp_path, wrong)
    check_refusal(result, ", line 10: profiles[0].plugins.score.enabled[0].name: ")
    remedy = "A plugin of your own scheduler is accepted with --allow TargetLoadPackng\n"
    assert f"did you mean TargetLoadPacking? {remedy}" in result.output
    assert check(tmp_path, wrong, "--allow", "TargetLoadPackng").exit_code == 0


def test_a_file_has_its_users(tmp_path):
    """The check lists the programs that can use a file, and why others cannot."""
    stock, go, extender, score = (
        "kube-scheduler",
        "kube-scheduler with the Go plugins",
        "kube-scheduler with trimaran's extender",
        "trimaran score",
    )
    upstream = users(check(tmp_path, GOOD))
    assert upstream == {
        stock: "no: it has no plugin TargetLoadPacking",
        go: "yes",
        extender: "yes, converted by trimaran extender config",
        score: "yes",
        "trimaran scheduler": "yes",
    }
    ours = users(check(tmp_path, GOOD.replace("{targetUtilization: 60", "{targetUtilization: 60, percentile: P95")))
    assert ours == {**upstream, go: "no: it refuses TargetLoadPackingArgs.percentile"}
    assert (
        users(check(tmp_path, GOOD.replace("TargetLoadPacking", "CongestionCost")))[go]
        == "no: it has no plugin CongestionCost"
    )
    old = users(check(tmp_path, GOOD.replace(".io/v1", ".io/v1beta2")))
    assert old[extender] == "no: it refuses KubeSchedulerConfiguration.apiVersion"
    other = GOOD.replace("enabled: [", "enabled: [{name: Coscheduling}, ")
    assert users(check(tmp_path, other))[extender] == "no: it has no plugin Coscheduling"
    allowed = users(check(tmp_path, other, "--allow", "Coscheduling"))
    assert (allowed[stock], allowed[score]) == (upstream[stock], upstream[score])
    unknown = "not checked: profiles[0].plugins: the extension points and arguments of Coscheduling are not known"
    assert (allowed[go], allowed[extender]) == (unknown, unknown)
    in_tree = users(check(tmp_path, GOOD[: GOOD.index("  plugins:")]))
    assert (in_tree[stock], in_tree[extender].partition(":")[0], go in in_tree) == ("yes", "no", False)


GANGS = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: trimaran
  plugins:
    multiPoint: {enabled: [{name: Coscheduling}]}
    queueSort: {disabled: [{name: PrioritySort}]}
  pluginConfig:
  - name: Coscheduling
    args:
      permitWaitingTimeSeconds: 10
"""


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "Seconds: 10",
            "Seconds: -1",
            "no: line 11: profiles[0].pluginConfig[0].args.permitWaitingTimeSeconds: must be",
        ),
        ("Seconds: 10", "Seconds: true", "TimeSeconds"),
        ("Seconds: 10", "Second: 10", "args.permitWaitingTimeSecond"),
        ("\n      permitWaitingTimeSeconds: 10", " [1]", "pluginConfig[0].args:"),
        ("    queueSort: {disabled: [{name: PrioritySort}]}\n", "", "profiles[0].plugins.queueSort: PrioritySort and"),
    ],
)
def test_what_trimaran_scheduler_refuses_is_a_problem(tmp_path, old, new, problem):
    """The file is read as trimaran scheduler reads it: its row has the error, and the status is 1."""
    assert users(check(tmp_path, GANGS))["trimaran scheduler"] == "yes"
    result = check(tmp_path, GANGS.replace(old, new))
    assert problem in users(result)["trimaran scheduler"]
    assert result.output.splitlines()[-1].endswith("trimaran scheduler refuses it")
    assert result.exit_code == 1


HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
PROFILE = "profiles:\n- schedulerName: default-scheduler\n"


@pytest.mark.parametrize(
    ("text", "version", "refused"),
    [
        (f"{PROFILE}  pluginConfig: [{{name: DefaultPreemption, args: {{minCandidateNodesPercent: 20}}}}]\n", "1.37",
         "DefaultPreemptionArgs.minCandidateNodesPercent"),
        ("podInitialBackoffSeconds: 20\n", "1.37", "KubeSchedulerConfiguration.podMaxBackoffSeconds"),
        ('extenders: [{urlPrefix: "http://e", prioritizeVerb: p}]\n', "1.37", "extenders[0].weight"),
        ('extenders: [{urlPrefix: "https://e", enableHttps: true}]\n', "1.37", "extenders[0].enableHttps"),
        (f"{PROFILE}  plugins: {{placementScore: {{}}}}\n", "1.35", "profiles[0].plugins.placementScore"),
    ],
)  # fmt: skip
def test_what_kube_scheduler_refuses_is_a_problem(tmp_path, text, version, refused):
    """The row of kube-scheduler names the key, a line has the reason and the line, and the status is 1."""
    result = check(tmp_path, HEAD + text, "--kubernetes-version", version)
    assert users(result)["kube-scheduler"] == f"no: it refuses {refused}"
    place = "" if "podMaxBackoff" in refused else " (line "  # the file does not have the key
    assert [line for line in result.output.splitlines() if line.startswith(f"refused  {refused}{place}")]
    assert "kube-scheduler refuses it" in result.output.splitlines()[-1]
    assert result.exit_code == 1


@pytest.mark.parametrize(
    "text",
    [
        f"{PROFILE}  pluginConfig: [{{name: TaintToleration, args: {{x: 1}}}}]\n",
        f"{PROFILE}  pluginConfig: [{{name: ImageLocality, args: [1]}}]\n",
        "podMaxBackoffSeconds:\npodInitialBackoffSeconds: null\nprofiles:\n",
        "profiles: []\n",
    ],
)
def test_what_kube_scheduler_ignores_is_no_problem(tmp_path, text):
    """Null is unset, and arguments that kube-scheduler does not decode are ignored, also by trimaran scheduler."""
    result = check(tmp_path, HEAD + text, "--kubernetes-version", "1.37")
    assert (users(result)["kube-scheduler"], users(result)["trimaran scheduler"]) == ("yes", "yes")
    assert result.exit_code == 0


def test_a_file_that_trimaran_cannot_read_has_a_verdict_of_kube_scheduler(tmp_path):
    """The error of trimaran does not hide that kube-scheduler starts with the file: it ignores a disabled typo."""
    result = check(tmp_path, f"{HEAD}{PROFILE}  plugins: {{score: {{disabled: [{{name: NoSuchPlugin}}]}}}}\n")
    assert result.exit_code == 2
    assert users(result)["kube-scheduler"] == "yes"
    assert "'NoSuchPlugin'" in result.stderr


def test_the_verdict_has_its_judge(tmp_path):
    """The table says whose rules it has; a program that is not a kube-scheduler is an error with status 2."""
    assert "kube-scheduler 1.36" in check(tmp_path, GOOD, "--kubernetes-version", "1.36").output
    check_refusal(check(tmp_path, GOOD, "--kube-scheduler", "/bin/true"), "/bin/true")
