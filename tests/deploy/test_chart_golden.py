"""What the chart renders from each file in its folder `ci`, and the rules that hold for all of it.

`renderings/defaults.txt` has every field of the defaults, each other file what differs from them. After a change that is
meant, `scripts/test tests/deploy/test_chart_golden.py --rewrite` writes them again; read the difference, then commit it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest
from deploy.chart_rendering import (
    APP_VERSION,
    CI_FILES,
    Rendered,
    containers_of,
    environment_of,
    fields_of,
    needs_helm,
    render,
    settings_of,
    values_of,
)
from support.offenders import assert_none

from deploy.chart.generator.layout import CHART
from enricher.worker.settings import TaskSettings

pytestmark = [needs_helm, pytest.mark.slow]

RENDERINGS = Path(__file__).parent / "renderings"
DEFAULTS = CHART / "ci" / "defaults-values.yaml"
COMMAND = "scripts/test tests/deploy/test_chart_golden.py --rewrite"


def golden_of(path: Path) -> Path:
    """The committed rendering of a file of values."""
    return RENDERINGS / f"{path.stem.removesuffix('-values')}.txt"


def lines_of(path: Path) -> list[str]:
    """The fields that a file of values gives. They do not change with the version of the program, or a job's hash."""
    fields = [f"{name} = {value}" for name, value in fields_of(render(values_of(path)))]
    fields = [re.sub(r"(news-enricher-)[0-9a-f]{8}\b", r"\1HASH", field) for field in fields]
    ours = re.compile(rf'(= "|"enricher[-:]){re.escape(APP_VERSION)}(?=["-])')
    return [ours.sub(r"\1VERSION", field) for field in fields]


def text_of(path: Path) -> str:
    """What is committed for a file of values: all fields of the defaults, or those that come and go beside them."""
    lines = lines_of(path)
    if path != DEFAULTS:
        compared = list(unified_diff(lines_of(DEFAULTS), lines, n=0, lineterm=""))[2:]
        lines = [line for line in compared if not line.startswith("@@")]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", CI_FILES, ids=lambda path: path.stem)
def test_the_chart_renders_what_is_committed(path: Path, request: pytest.FixtureRequest) -> None:
    """A change of the chart shows as a change of these files, in the same commit."""
    if request.config.getoption("--rewrite"):
        golden_of(path).write_text(text_of(path), "utf-8")
    committed = golden_of(path).read_text("utf-8") if golden_of(path).exists() else ""
    changes = list(unified_diff(committed.splitlines(), text_of(path).splitlines(), n=0, lineterm=""))[2:]
    assert_none([*changes, f"If this is meant: {COMMAND}"] if changes else [])


def test_no_rendering_is_left_over() -> None:
    """Each belongs to a file of values."""
    assert {path.name for path in RENDERINGS.iterdir()} == {golden_of(path).name for path in CI_FILES}


def _restricted(rendered: Rendered) -> Iterator[bool]:
    """Kubernetes' own standard of that name, a read-only root, and no token of the API."""
    runtime = {"type": "RuntimeDefault"}
    for pod in rendered.pods:
        context = pod["securityContext"]
        yield context["runAsNonRoot"] is True and context["seccompProfile"] == runtime and context.get("runAsUser") != 0
        yield pod["automountServiceAccountToken"] is False and not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        for container in containers_of(pod):
            context = container["securityContext"]
            yield context["allowPrivilegeEscalation"] is False and context["readOnlyRootFilesystem"] is True
            yield context["runAsNonRoot"] is True and context["capabilities"] == {"drop": ["ALL"]}
            yield context["seccompProfile"] == runtime


def _bounded(rendered: Rendered) -> Iterator[bool]:
    """Requests, a limit of memory, and a bound on each empty volume: else a pod is evicted first, or evicts others."""
    for pod in rendered.pods:
        yield all("sizeLimit" in volume["emptyDir"] for volume in pod["volumes"] if "emptyDir" in volume)
        for container in containers_of(pod):
            yield {"cpu", "memory"} <= container["resources"]["requests"].keys()
            yield "memory" in container["resources"]["limits"]


def _mounted(rendered: Rendered) -> Iterator[bool]:
    """What is mounted is a volume, `/tmp` is one, and every file that a setting names is an item of its Secret."""
    for pod in rendered.pods:
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for container in containers_of(pod):
            mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
            yield "/tmp" in mounts and volumes.keys() >= set(mounts.values())
            text = json.dumps([environment_of(container), container.get("args")])
            for folder, file in re.findall(r"(/run/secrets/[-a-z]+)/([-.\w]+)", text):
                secret = volumes.get(mounts.get(folder, ""), {}).get("secret", {"items": []})
                yield file in {item["path"] for item in secret["items"]}


def _secretless(rendered: Rendered) -> Iterator[bool]:
    """The chart refers to Secrets and makes none, and no variable holds one."""
    yield not rendered.all("Secret")
    for pod in rendered.pods:
        for container in containers_of(pod):
            yield not [
                name for name in environment_of(container) if re.search(r"HEADERS|PASSWORD$|(?<!KAFKA__)TOKEN$", name)
            ]


def _selected(rendered: Rendered) -> Iterator[bool]:
    """Every selector finds the pods of one workload: a Service, budget or policy without one would have no effect."""
    labels = [each["metadata"]["labels"].items() for each in rendered.templates]
    for each in rendered.objects:
        spec = each.get("spec", {})
        if selector := spec.get("selector", spec.get("podSelector")):
            wanted = selector.get("matchLabels", selector).items()
            yield sum(wanted <= of_pod for of_pod in labels) == 1


def _defined_before(rendered: Rendered) -> Iterator[bool]:
    """A variable that names another one comes behind it, or Kubernetes leaves `$(NAME)` as it is."""
    for pod in rendered.pods:
        for container in containers_of(pod):
            names = [entry["name"] for entry in container["env"]]
            for index, entry in enumerate(container["env"]):
                yield set(re.findall(r"\$\((\w+)\)", entry.get("value", ""))) <= set(names[:index])


def _answering(rendered: Rendered) -> Iterator[bool]:
    """Probes and Services ask by name for a port at which the program listens, for any address."""
    settings = settings_of(rendered.worker)
    ports = {port["name"]: port["containerPort"] for port in rendered.worker["ports"]}
    yield (ports["health"], ports["probes"]) == (settings.health.port, settings.health.probe_port)
    yield settings.health.host == "::"
    probes = {"startupProbe": "/startupz", "readinessProbe": "/readyz", "livenessProbe": "/livez"}
    yield from (rendered.worker[each]["httpGet"] == {"path": path, "port": "probes"} for each, path in probes.items())
    yield from (port["targetPort"] == "health" for each in rendered.all("Service") for port in each["spec"]["ports"])


SPEC, WORKER = ("spec", "template", "spec"), ("spec", "template", "spec", "containers", 0)
RULES: list[tuple[Callable[[Rendered], Iterator[bool]], tuple[str | int, ...], object]] = [
    (_restricted, (*WORKER, "securityContext", "allowPrivilegeEscalation"), True),
    (_bounded, (*WORKER, "resources", "limits"), {}),
    (_mounted, (*SPEC, "volumes"), []),
    (_secretless, (*WORKER, "env"), [{"name": "SASL_PASSWORD", "value": "canary"}]),
    (_selected, ("spec", "selector", "matchLabels"), {"app": "another"}),
    (_defined_before, (*WORKER, "env"), [{"name": "A", "value": "$(B)"}, {"name": "B", "value": "b"}]),
    (_answering, (*WORKER, "ports", 0, "containerPort"), 1),
]
"""Each rule, which yields whether what it looks at is right, and a field of the StatefulSet with a value that breaks it."""


@pytest.mark.parametrize("rule", [rule for rule, _, _ in RULES], ids=lambda rule: rule.__name__)
def test_a_rule_holds_for_every_rendering(rule: Callable[[Rendered], Iterator[bool]]) -> None:
    """Renderings that were rewritten without a look are still held to these."""
    assert_none(path.stem for path in CI_FILES if not all(rule(render(values_of(path)))))


@pytest.mark.parametrize(("rule", "field", "value"), RULES, ids=lambda each: getattr(each, "__name__", ""))
def test_a_rule_finds_what_breaks_it(
    rule: Callable[[Rendered], Iterator[bool]], field: tuple[str | int, ...], value: object
) -> None:
    """Negative control: one field of the production rendering is wrong."""
    rendered = Rendered(deepcopy(render(values_of(CHART / "ci" / "production-values.yaml")).objects))
    assert all(rule(rendered))
    inside: Any = rendered.one("StatefulSet")
    for name in field[:-1]:
        inside = inside[name]
    inside[field[-1]] = value
    assert not all(rule(rendered))


@pytest.mark.parametrize("path", CI_FILES, ids=lambda path: path.stem)
def test_every_variable_is_a_setting(path: Path) -> None:
    """The worker's own loader reads what the chart sets, and gets what the values say."""
    values = values_of(path)
    rendered = render(values)
    [main, *_] = [each["spec"]["template"]["spec"]["containers"][0] for each in rendered.all("Deployment")] or [
        rendered.worker
    ]
    settings = settings_of(main)
    for group, fields in values.get("settings", {}).items():
        for field, value in fields.items():
            of_group: Any = getattr(settings, group)
            if group == "tasks":
                assert TaskSettings.model_validate(value) == of_group[field]
                continue
            found = getattr(of_group, field)
            assert found.items() >= value.items() if field == "properties" else json.loads(json.dumps(found)) == value
    assert settings.model.device == ("cuda" if values.get("gpu", {}).get("enabled") else "cpu")
    cache = str(settings_of(rendered.worker).model.cache_dir)
    assert cache in {mount["mountPath"] for mount in rendered.worker["volumeMounts"]}


def test_a_variable_that_is_no_setting_would_be_noticed() -> None:
    """Negative control of the test above."""
    with pytest.raises(Exception, match="ENRICHER_KAFKA__GROUP"):
        settings_of(render({"extraEnv": [{"name": "ENRICHER_KAFKA__GROUP", "value": "x"}]}).worker)


def test_a_replay_has_the_settings_of_the_workers() -> None:
    """It differs only in what it is given: another model and a limit."""
    replay = render(values_of(CHART / "ci" / "replay-values.yaml"))
    replayed, live = (
        settings_of(replay.one("Job")["spec"]["template"]["spec"]["containers"][0]),
        settings_of(replay.worker),
    )
    assert ("/model/newswire-2027", "/model/newswire-2026") == (replayed.model.source, live.model.source)
    assert 500 == replayed.worker.max_articles_per_second
    assert live == replayed.model_copy(update={"model": live.model, "worker": live.worker})
