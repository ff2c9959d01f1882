"""Verdicts on kube-scheduler's files by its rules: what real kube-schedulers said of the same files."""

import json
from pathlib import Path

import pytest
from support.scheduler_files import FOLDER, base_files, digest, mutations

from scoring.kubernetes_version import (
    KUBERNETES_VERSIONS,
    default_score_weights,
    has_score,
    ignores_arguments,
    in_tree_plugins,
)
from trimaran.kube_scheduler.binary import KubeSchedulerProgram
from trimaran.kube_scheduler.decoding import nanoseconds
from trimaran.kube_scheduler.findings import StartVerdict
from trimaran.kube_scheduler.go_yaml import Refused, Unclear, go_values
from trimaran.kube_scheduler.table import table_of
from trimaran.kube_scheduler.verdict import verdict_of

NEWEST = KUBERNETES_VERSIONS[-1]
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def verdict(text: str, version: str = NEWEST, **options) -> StartVerdict:
    return verdict_of((HEAD + text).encode(), version, **options)


@pytest.mark.parametrize("recorded", sorted(FOLDER.glob("verdicts-*.json")), ids=lambda path: path.stem)
def test_mutated_files_get_the_verdicts_of_the_real_program(recorded: Path):
    """Over the mutated files: never yes unless kube-scheduler starts, no only where it refuses, rarely not checked."""
    record = json.loads(recorded.read_text())
    judged = [
        (name, record["files"][name], digest(text), verdict_of(text, record["kubernetes"]))
        for name, text in mutations(record["seed"], record["count"])
    ]
    assert [name for name, (recorded_digest, *_), found, _ in judged if recorded_digest != found] == []
    wrong = [
        (name, row, own.row) for name, (_, answer, row), _, own in judged if own.answer not in {answer, "not checked"}
    ]
    assert wrong == []
    answers = [answer for _, (_, answer, _), _, _ in judged]
    assert len(answers) >= 200
    assert min(answers.count("yes"), answers.count("no")) >= 0.3 * len(answers)
    undecided = [name for name, (_, answer, _), _, own in judged if own.answer == "not checked" != answer]
    assert len(undecided) <= 0.02 * len(answers)


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_files_of_real_clusters_are_accepted(version):
    """No version refuses a file of a real cluster, apart from the keys and gates that it does not have yet."""
    newer = {"devices": ("1.33", "1.34", "1.35"), "volumes": ("1.33", "1.34", "1.35", "1.36")}
    for name, text in base_files().items():
        expected = {"no"} if version in newer.get(name, ()) else {"yes", "not checked"}
        answer = verdict_of(text, version).answer
        assert answer in expected | ({"yes"} if (name, version) == ("devices", "1.33") else set()), (name, version)


PROFILE = "profiles:\n- schedulerName: default-scheduler\n"


@pytest.mark.parametrize(
    ("text", "version", "name"),
    [
        (f"{PROFILE}  pluginConfig: [{{name: DefaultPreemption, args: {{minCandidateNodesPercent: 20}}}}]", NEWEST,
         "DefaultPreemptionArgs.minCandidateNodesPercent"),
        ("podInitialBackoffSeconds: 20", NEWEST, "KubeSchedulerConfiguration.podMaxBackoffSeconds"),
        ('extenders: [{urlPrefix: "http://e", prioritizeVerb: p}]', NEWEST, "extenders[0].weight"),
        ("extenders: [{enableHttps: true}]", NEWEST, "extenders[0].enableHttps"),
        ("extenders: [{httpTimeout: 30}]", NEWEST, "extenders[0].httpTimeout"),
        ("leaderElection: {leaseDuration: null}", NEWEST, "KubeSchedulerConfiguration.leaderElection.leaseDuration"),
        (f"{PROFILE}  plugins: {{placementScore: {{}}}}", "1.35", "profiles[0].plugins.placementScore"),
        (f"{PROFILE}  plugins: {{score: {{enabled: [{{name: NodePorts}}]}}}}", NEWEST,
         "profiles[0].plugins.score.enabled[0].name"),
        (f"{PROFILE}  plugins: {{bind: {{disabled: [{{name: DefaultBinder}}]}}}}", NEWEST, "profiles[0].plugins.bind"),
        ("profiles: [{}, {}]", NEWEST, "profiles[0].schedulerName"),
        ("clientConnection: {qps: '5'}", NEWEST, "KubeSchedulerConfiguration.clientConnection.qps"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_key(text, version, name):
    """Each refused key has its path, in the form of the notes on a configuration."""
    found = verdict(text, version)
    assert found.answer == "no"
    assert found.refused[0].name == name


@pytest.mark.parametrize(
    "text",
    [
        "podMaxBackoffSeconds:",
        "profiles: []",
        "profiles: [null]",
        f"{PROFILE}  pluginConfig: [{{name: TaintToleration, args: {{x: 1}}}}, {{name: PrioritySort, args: [1]}}]",
        f"{PROFILE}  pluginConfig: [{{name: NodeAffinity, args: null}}]",
        f"{PROFILE}  pluginConfig: [{{name: NotEnabled, args: 5}}]",
        f"{PROFILE}  plugins: {{multiPoint: {{}}, placementGenerate: {{}}, placementScore: null}}",
        f"{PROFILE}  plugins: {{score: {{disabled: [{{name: NoSuchPlugin}}]}}}}",
        "percentageOfNodesToScore: 1e1\nparallelism: 010\ndelayCacheUntilActive: y",
    ],
)
def test_null_is_unset_and_unread_arguments_are_accepted(text):
    """kube-scheduler ignores null, arguments of plugins without a type for them, and disabled names."""
    assert verdict(text).row == "yes"


@pytest.mark.parametrize(
    ("text", "options", "unknown"),
    [
        ("extenders: [{urlPrefix: 'https://e', tlsConfig: {caFile: /ca.crt}}]", {}, "the file /ca.crt is not read"),
        (f"{PROFILE}  plugins: {{multiPoint: {{enabled: [{{name: Mine}}]}}}}", {"others": ["Mine"]}, "Mine"),
        ("parallelism: !!int 5", {}, "YAML tag"),
        ("clientConnection: {contentType: text/plain}", {}, "other types"),
        ("a: &a {b: c}\n<<: *a", {}, "line 4: the key"),
    ],
)
def test_what_is_not_known_is_not_a_yes(text, options, unknown):
    """Files on other machines, plugins that are not known, and rare YAML are not checked."""
    found = verdict(text, **options)
    assert found.answer == "not checked"
    assert unknown in found.row


def test_a_missing_plugin_is_named():
    """An enabled plugin that this kube-scheduler does not have is missing, unless it is a further one."""
    text = f"{PROFILE}  plugins: {{score: {{enabled: [{{name: TargetLoadPacking}}]}}}}"
    assert verdict(text).row == "no: it has no plugin TargetLoadPacking"
    assert verdict(text, others=None, scores=["TargetLoadPacking"]).row == "yes"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("yes", True), ("N", False), ("~", None), ("1e3", 1000), ("1.0", 1), ("1.5", 1.5), ("0x1F", 31), ("0o17", 15),
        ("017", 15), ("08", 8), ("1_000", 1000), ("-0b11", -3), ("1:30", "1:30"), ("2026-11-28", "2026-11-28"),
        ("1e400", "1e400"), (".5", 0.5), ("+5", 5), ("'5'", "5"), ("v1", "v1"), ("18446744073709551615", 2**64 - 1),
    ],
)  # fmt: skip
def test_scalars_are_those_of_go(written, value):
    """A scalar without quotes has the value and type that kube-scheduler reads."""
    read = go_values(f"a: {written}".encode())["a"]
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"a: 1\na: 2", Refused), (b"a: .inf", Refused), (b"~: 1", Refused), (b"{a: b}", Refused),
        (b'{"a": 1, "a": 2}', Refused), (b"a: [", Unclear), (b"a: 1\n---\nb: 2", Unclear), (b"\xff", Unclear),
        (b"1.5: a", Unclear),
    ],
)  # fmt: skip
def test_texts_that_cannot_be_read(text, error):
    """A repeated key and YAML in braces are refused; a text that is not valid YAML here is not checked."""
    with pytest.raises(error):
        go_values(text)


def test_durations_are_those_of_go():
    """Durations have Go's units, signs and limits."""
    assert nanoseconds("1h0m1.5s") == 3_601_500_000_000
    assert (nanoseconds("-5ms"), nanoseconds("0"), nanoseconds(".5s")) == (-5_000_000, 0, 500_000_000)
    assert [nanoseconds(text) for text in ("", "5", "s", "1d", "1 s", "9999999h")] == [None] * 6


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_the_table_agrees_with_the_scores(version):
    """The generated table has the plugins, score points, arguments and default scores that scoring knows."""
    table = table_of(version)
    assert table.plugins.keys() == in_tree_plugins(version)
    for plugin, points in table.plugins.items():
        if plugin != "VolumeBinding":  # up to 1.36 it scores only with a feature gate
            assert ("score" in points) == has_score(plugin, version), plugin
        assert ignores_arguments(plugin, version) == (f"{plugin}Args" not in table.structs)
    assert {name for name in table.defaults if "score" in table.plugins[name]} == default_score_weights(version).keys()


@pytest.mark.parametrize(
    ("program", "problem"),
    [("#!/bin/sh\necho hello\n", "is not a kube-scheduler"), (None, "cannot be run: No such file or directory")],
)
def test_another_program_is_not_asked(tmp_path, program, problem):
    """A program that is missing, or is not a kube-scheduler, is named."""
    path = tmp_path / "kube-scheduler"
    if program:
        path.write_text(program)
        path.chmod(0o755)
    with pytest.raises(ValueError, match=problem):
        KubeSchedulerProgram(path).verdict(HEAD.encode())


@pytest.mark.parametrize(
    ("ending", "row"),
    [
        ("""echo 'E1128 run.go] "command failed" err="a \\"b\\""' >&2; exit 1""", 'no: a "b"'),
        ("""echo 'err="score: ScorePlugin \\"X\\" does not exist"' >&2; exit 1""", "no: it has no plugin X"),
        ("echo 'Error: unknown flag: --write-config-to' >&2; exit 1", "not checked: the program exited with status 1"),
        ("kill -9 $$", "not checked: the program exited with status -9"),
        ("exit 0", "not checked: the program exited with status 0"),
        ('cp "$2" "$4"; exit 0', "not checked: extenders[0].tlsConfig.caFile: the file /no/ca is not on this machine"),
    ],
)
def test_only_an_error_about_the_file_is_a_refusal(tmp_path, ending, row):
    """A program that is killed, has no such flag or writes nothing says nothing about the file."""
    path = tmp_path / "kube-scheduler"
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo Kubernetes v1.37.2 && exit\n{ending}\n')
    path.chmod(0o755)
    text = HEAD + "clientConnection: {kubeconfig: /no/config}\nextenders: [{tlsConfig: {caFile: /no/ca}}]\n"
    found = KubeSchedulerProgram(path).verdict(text.encode())
    assert found.row.startswith(row)
    assert found.judge == "kube-scheduler v1.37.2"
