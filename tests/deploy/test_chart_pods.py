"""The pods of the chart: restricted, stable, and with existing settings only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deploy.chart_rendering import (
    CI_FILES,
    FULL_NAME,
    Object,
    Rendered,
    containers_of,
    environment_of,
    needs_helm,
    refusal,
    render,
    values_of,
)
from typer.testing import CliRunner

from deploy.chart.generator.layout import CHART
from enricher.cli import app
from enricher.worker.commands.run.share import Share
from enricher.worker.settings import Settings, TaskSettings, load_settings

pytestmark = [needs_helm, pytest.mark.slow]

each_option = pytest.mark.parametrize("rendered_from", CI_FILES, ids=lambda path: path.stem)


def settings_of(container: Object, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings of a container's worker. Raises SettingsError for what a worker would refuse."""
    for name, value in environment_of(container).items():
        monkeypatch.setenv(name, value)
    return load_settings()


@each_option
def test_every_pod_is_restricted(rendered_from: Path) -> None:
    """Kubernetes' own standard of that name, a read-only root, and no token of the API."""
    for pod in render(values_of(rendered_from)).pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["securityContext"].get("runAsUser") != 0
        assert pod["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        for container in containers_of(pod):
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["runAsNonRoot"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["seccompProfile"] == {"type": "RuntimeDefault"}


@each_option
def test_every_container_has_requests_and_a_bound_on_memory(rendered_from: Path) -> None:
    """Without them a pod is the first to be evicted, or evicts others."""
    for pod in render(values_of(rendered_from)).pods:
        for container in containers_of(pod):
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
            assert "memory" in container["resources"]["limits"]


@each_option
def test_what_is_written_goes_into_volumes_with_a_bound(rendered_from: Path) -> None:
    """The root is read-only, and an empty volume without a size limit could fill the node."""
    for pod in render(values_of(rendered_from)).pods:
        assert all("sizeLimit" in volume["emptyDir"] for volume in pod["volumes"] if "emptyDir" in volume)
        names = {volume["name"] for volume in pod["volumes"]}
        for container in containers_of(pod):
            assert {mount["name"] for mount in container["volumeMounts"]} <= names
            assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}


@each_option
def test_no_service_slips_variables_into_a_pod(rendered_from: Path) -> None:
    """A Service named `enricher` would add ENRICHER_PORT and others, which say nothing to the worker."""
    assert all(pod["enableServiceLinks"] is False for pod in render(values_of(rendered_from)).pods)


@each_option
def test_every_variable_is_a_setting(rendered_from: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's own loader reads what the chart sets, and gets what the values say."""
    values = values_of(rendered_from)
    rendered = render(values)
    settings = settings_of(rendered.worker, monkeypatch)
    if "index" in values.get("settings", {}):
        [indexer] = rendered.one("Deployment")["spec"]["template"]["spec"]["containers"]
        settings = settings_of(indexer, monkeypatch)
    for group, fields in values.get("settings", {}).items():
        for field, value in fields.items():
            of_group = getattr(settings, group)
            if group == "tasks":
                assert TaskSettings.model_validate(value) == of_group[field]
                continue
            found = getattr(of_group, field)
            assert found.items() >= value.items() if field == "properties" else json.loads(json.dumps(found)) == value
    assert settings.health.host == "::", "a pod may have an address of IPv4 or IPv6"
    assert settings.model.device == ("cuda" if values.get("gpu", {}).get("enabled") else "cpu")
    assert str(settings.model.cache_dir) in {mount["mountPath"] for mount in render(values).worker["volumeMounts"]}


def test_a_variable_that_is_no_setting_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control of the test above."""
    worker = render({"extraEnv": [{"name": "ENRICHER_KAFKA__GROUP", "value": "x"}]}).worker
    with pytest.raises(Exception, match="ENRICHER_KAFKA__GROUP"):
        settings_of(worker, monkeypatch)


def test_the_instance_is_left_to_the_name_of_the_pod() -> None:
    """A StatefulSet's pod has its name as host name, from which the transactional id is made."""
    rendered = render()
    assert "ENRICHER_KAFKA__INSTANCE" not in environment_of(rendered.worker)
    assert "hostname" not in rendered.pod
    spec = rendered.one("StatefulSet")["spec"]
    assert spec["podManagementPolicy"] == "Parallel"
    headless = rendered.one("Service", spec["serviceName"])
    assert headless["spec"]["clusterIP"] == "None"


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        ({}, 20 + 15 + 60),
        ({"settings": {"worker": {"drain_timeout_s": 50}}}, 50 + 15 + 60),
        ({"settings": {"kafka": {"transaction_timeout_s": 18.5}, "worker": {"stall_timeout_s": 30}}}, 69),
        ({"terminationGracePeriodSeconds": 300}, 300),
    ],
    ids=str,
)
def test_the_grace_period_follows_from_the_settings(values: Object, seconds: int) -> None:
    """It is the sum of drain, one transaction and the watchdog's bound, rounded up."""
    assert render(values).pod["terminationGracePeriodSeconds"] == seconds


def test_the_grace_period_follows_from_the_defaults_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """They come from the code."""
    settings = settings_of(render().worker, monkeypatch)
    derived = settings.worker.drain_timeout_s + settings.kafka.transaction_timeout_s + settings.worker.stall_timeout_s
    assert render().pod["terminationGracePeriodSeconds"] == derived


@pytest.mark.parametrize("port", [8080, 9001])
def test_probes_and_services_ask_where_the_worker_answers(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes use one port and services the other, by name."""
    rendered = render({"health": {"port": port, "probePort": port + 1}})
    health = settings_of(rendered.worker, monkeypatch).health
    assert (health.port, health.probe_port) == (port, port + 1)
    assert rendered.worker["ports"] == [
        {"name": "health", "containerPort": port, "protocol": "TCP"},
        {"name": "probes", "containerPort": port + 1, "protocol": "TCP"},
    ]
    probes = {"startupProbe": "/startupz", "readinessProbe": "/readyz", "livenessProbe": "/livez"}
    for probe, path in probes.items():
        assert rendered.worker[probe]["httpGet"] == {"path": path, "port": "probes"}
    for service in rendered.all("Service"):
        assert service["spec"]["ports"][0]["port"] == port
        assert service["spec"]["ports"][0]["targetPort"] == "health"


def test_a_model_may_take_its_time_to_load() -> None:
    """Liveness begins after the start, whose bound comes from the values, rounded up."""
    probe = render({"probes": {"startup": {"timeoutSeconds": 601, "periodSeconds": 5}}}).worker["startupProbe"]
    assert probe["failureThreshold"] == 121


def roll(before: Rendered, after: Rendered) -> bool:
    """Whether an upgrade from one to the other replaces the workers."""
    templates = [each.one("StatefulSet")["spec"]["template"] for each in (before, after)]
    return bool(templates[0] != templates[1])


def test_only_what_a_worker_reads_rolls_the_workers() -> None:
    """Every start loads a model, so only changes that a worker reads may cause one."""
    assert roll(render(), render({"settings": {"worker": {"publish_interval_ms": 100}}}))
    assert roll(render(), render({"image": {"tag": "0.2.0-cpu"}}))
    unrelated = {"replicas": 5, "monitoring": {"podMonitor": {"enabled": True}}, "networkPolicy": {"enabled": False}}
    assert not roll(render(), render(unrelated))
    assert not roll(render(), render({"autoscaling": {"mode": "hpa"}}))


def test_a_chart_of_another_version_does_not_roll_the_workers() -> None:
    """A pod's labels contain no version."""
    labels = render().one("StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert not any("chart" in name or "version" in name for name in labels)


def test_processes_are_the_workers_own() -> None:
    """The option is set only for several processes."""
    assert ["run"] == render().worker["args"]
    arguments = render({"processes": 4}).worker["args"]
    assert ["run", "--processes=4"] == arguments
    assert CliRunner().invoke(app, [*arguments, "--help"]).exit_code == 0


def test_every_process_is_scraped_and_all_have_common_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pod, monitor and policy name the port of each; the indexer has one process. The program chooses the same ports."""
    index = {"index": {"enabled": True}, "settings": {"index": {"url": "https://search:9200"}}}
    rendered = render({"processes": 3, "monitoring": {"podMonitor": {"enabled": True}}, **index})
    ports = {port["name"]: port["containerPort"] for port in rendered.worker["ports"]}
    health = settings_of(rendered.worker, monkeypatch).health
    names = ["health", "health-1", "health-2"]
    assert [Share(index, 3).of_health(health).port for index in range(3)] == [ports[name] for name in names]
    assert health.probe_port == ports["probes"]
    monitors = {each["metadata"]["name"]: each["spec"]["podMetricsEndpoints"] for each in rendered.all("PodMonitor")}
    assert {FULL_NAME: names, f"{FULL_NAME}-index": ["health"]} == {
        name: [endpoint["port"] for endpoint in endpoints] for name, endpoints in monitors.items()
    }
    policy = rendered.one("NetworkPolicy", FULL_NAME)["spec"]["ingress"][0]
    assert names == [port["port"] for port in policy["ports"]]


def test_metrics_and_traces_go_where_the_values_say() -> None:
    """The standard variables are set, but only with an endpoint."""
    assert not any(name.startswith("OTEL_") for name in environment_of(render().worker))
    values = {"endpoint": "http://collector:4318", "traces": False, "resourceAttributes": {"a": "b"}}
    environment = environment_of(render({"otlp": values}).worker)
    assert environment["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://collector:4318"
    assert [environment[f"OTEL_{each}_EXPORTER"] for each in ("METRICS", "TRACES")] == ["otlp", "none"]
    assert environment["OTEL_RESOURCE_ATTRIBUTES"].endswith("service.instance.id=$(POD_NAMESPACE).$(POD_NAME),a=b")


def test_several_processes_send_their_metrics_under_names_of_their_own() -> None:
    """Each process sets its instance id, unless the resource attributes set one for all."""
    environment = environment_of(render({"processes": 2, "otlp": {"endpoint": "http://collector:4318"}}).worker)
    assert environment["OTEL_RESOURCE_ATTRIBUTES"].endswith("k8s.pod.name=$(POD_NAME)")


def test_workers_are_spread_without_being_kept_from_running() -> None:
    """They are spread over zones and nodes, with the workers' selector."""
    spread = render().pod["topologySpreadConstraints"]
    assert ["topology.kubernetes.io/zone", "kubernetes.io/hostname"] == [each["topologyKey"] for each in spread]
    labels = render().one("StatefulSet")["spec"]["selector"]
    assert all(each["labelSelector"] == labels and each["whenUnsatisfiable"] == "ScheduleAnyway" for each in spread)


def test_a_long_name_still_fits_into_labels() -> None:
    """A StatefulSet labels its pods with its name and a hash, in at most 63 characters."""
    name = render({"fullnameOverride": "n" * 70}).one("StatefulSet")["metadata"]["name"]
    assert len(f"{name}-0123456789") <= 63
    assert render().one("StatefulSet")["metadata"]["name"] == FULL_NAME


def test_a_replay_is_a_job_with_the_workers_settings_but_for_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pod has its host name again when it is replaced, and what no restart mends ends the job."""
    rendered = render(values_of(CHART / "ci" / "replay-values.yaml"))
    job = rendered.one("Job")["spec"]
    (container,) = job["template"]["spec"]["containers"]
    assert (4, 4, "Indexed") == (job["parallelism"], job["completions"], job["completionMode"])
    assert [2, 3, 4, 12] == job["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"]
    assert ["replay", "--from=2026-11-23T00:00Z", "--to=2026-11-24T00:00Z", "--into=entities.v2"] == container["args"][
        :4
    ]
    replayed, live = settings_of(container, monkeypatch), settings_of(rendered.worker, monkeypatch)
    assert ("/model/newswire-2027", "/model/newswire-2026") == (replayed.model.source, live.model.source)
    assert live == replayed.model_copy(update={"model": live.model})
    assert job["template"]["metadata"]["labels"]["app.kubernetes.io/component"] == "replay"
    assert [] == render({}).all("Job")


def test_another_range_is_another_job() -> None:
    """Kubernetes refuses to change one."""
    values = values_of(CHART / "ci" / "replay-values.yaml")
    names = {
        render({**values, "replay": {**values["replay"], **change}}).one("Job")["metadata"]["name"]
        for change in ({}, {"to": "end"}, {"group": "other"}, {"model": {"path": "third"}})
    }
    assert 4 == len(names)


def test_indexers_are_a_deployment_with_the_settings_of_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """And with those of the index, which no worker has."""
    rendered = render(values_of(CHART / "ci" / "index-values.yaml"))
    deployment = rendered.one("Deployment")["spec"]
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    assert (2, ["index", "run"]) == (deployment["replicas"], container["args"])
    worker, indexer = settings_of(rendered.worker, monkeypatch), settings_of(container, monkeypatch)
    assert worker == indexer.model_copy(update={"index": worker.index})
    assert ("", "indexer") == (worker.index.url, indexer.index.username)
    assert ("/run/secrets/index-auth/password", "/run/secrets/index-ca/ca.crt") == (
        str(indexer.index.password_file),
        str(indexer.index.ca_file),
    )
    secrets = {each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each}
    assert {"search", "search-ca"} == secrets
    assert not any("index" in each["name"] for each in rendered.worker["volumeMounts"])
    assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys()
    assert [] == render({}).all("Deployment")


@pytest.mark.parametrize(
    ("index", "settings", "reason"),
    [
        ({}, {}, "settings.index.url"),
        ({"auth": {"kind": "apiKey"}}, {"url": "http://x:9200"}, "index.auth.existingSecret"),
        ({"auth": {"existingSecret": "x"}}, {"url": "http://x:9200"}, "index.auth.kind is none"),
        ({}, {"url": "http://x:9200", "username": "u"}, "belong together"),
    ],
)
def test_an_index_that_cannot_work_is_refused(index: Object, settings: Object, reason: str) -> None:
    """With what is missing."""
    assert reason in refusal({"index": {"enabled": True, **index}, "settings": {"index": settings}})
