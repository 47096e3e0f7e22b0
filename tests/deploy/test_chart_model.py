"""Where a worker runs the model (GPU or cores), and where the model comes from (image, claim or init container)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deploy.chart_rendering import (
    APP_VERSION,
    CI_FILES,
    Object,
    environment_of,
    needs_helm,
    refusal,
    render,
    values_of,
)
from typer.testing import CliRunner

from enricher.cli import app

pytestmark = [needs_helm, pytest.mark.slow]


def test_one_gpu_per_pod() -> None:
    """The GPU is set as a limit, with tolerations and runtime class; without a GPU, none of these is set."""
    values: Object = {"gpu": {"enabled": True, "runtimeClassName": "nvidia", "nodeSelector": {"gpu": "l4"}}}
    rendered = render({**values, "nodeSelector": {"zone": "a"}, "tolerations": [{"operator": "Exists", "key": "own"}]})
    assert rendered.worker["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert rendered.pod["runtimeClassName"] == "nvidia"
    assert rendered.pod["nodeSelector"] == {"gpu": "l4", "zone": "a"}
    assert ["nvidia.com/gpu", "own"] == [each["key"] for each in rendered.pod["tolerations"]]
    without = render()
    assert "nvidia.com/gpu" not in without.worker["resources"]["limits"]
    assert not {"runtimeClassName", "nodeSelector", "tolerations"} & without.pod.keys()


@pytest.mark.parametrize(
    ("values", "concurrency"),
    [
        ({}, "1"),
        ({"resources": {"requests": {"cpu": "4"}}}, "4"),
        ({"resources": {"requests": {"cpu": 4}}, "processes": 3}, "1"),
        ({"resources": {"requests": {"cpu": "3900m"}}}, "3"),
        ({"resources": {"requests": {"cpu": "500m"}}}, "1"),
        ({"resources": {"requests": {"cpu": "96"}}}, "64"),
        ({"settings": {"model": {"concurrency": 7}}}, "7"),
        ({"resources": {"limits": {"cpu": "2"}}}, None),
        ({"resources": {"requests": {"cpu": None}}}, None),
        ({"gpu": {"enabled": True}}, None),
    ],
    ids=str,
)
def test_a_worker_on_a_cpu_takes_the_cores_that_it_asks_for(values: Object, concurrency: str | None) -> None:
    """Not all cores of the node, each of which needs memory. With a limit or a GPU the worker decides itself."""
    assert environment_of(render(values).worker).get("ENRICHER_MODEL__CONCURRENCY") == concurrency


def test_the_image_fits_the_device_unless_it_is_named() -> None:
    """A worker told to use CUDA from an image without it would never start."""
    assert render().worker["image"] == f"enricher:{APP_VERSION}-cpu"
    assert render({"gpu": {"enabled": True}}).worker["image"] == f"enricher:{APP_VERSION}-cuda"
    digest = f"sha256:{'a' * 64}"
    named = render({"image": {"repository": "registry.example/enricher", "tag": "x", "digest": digest}})
    assert named.worker["image"] == f"registry.example/enricher:x@{digest}"


@pytest.mark.parametrize(
    ("model", "source"),
    [
        ({}, None),
        ({"path": "/opt/models/ner"}, "/opt/models/ner"),
        ({"from": "volume", "volume": {"existingClaim": "models"}}, "/model"),
        ({"from": "volume", "path": "ner", "volume": {"existingClaim": "models"}}, "/model/ner"),
        ({"from": "init", "path": "ner", "init": {"image": "models:1"}}, "/model/ner"),
    ],
    ids=str,
)
def test_the_model_is_looked_for_where_it_is_put(model: Object, source: str | None) -> None:
    """It is in the image, on a claim, or where the init container put it."""
    rendered = render({"model": model})
    assert environment_of(rendered.worker).get("ENRICHER_MODEL__SOURCE") == source
    mounts = [mount for mount in rendered.worker["volumeMounts"] if mount["name"] == "model"]
    assert [{"name": "model", "mountPath": "/model", "readOnly": True}] * (model.get("from") is not None) == mounts
    for container in rendered.pod.get("initContainers", ()):
        assert environment_of(container)["MODEL_DIR"] == source
        assert {"name": "model", "mountPath": "/model"} in container["volumeMounts"]


def test_a_model_is_prepared_where_there_is_room_for_it() -> None:
    """`model prepare` writes next to the final folder, and downloads more than `/tmp` holds."""
    (path,) = (path for path in CI_FILES if path.stem == "model-prepare-values")
    rendered = render(values_of(path))
    (container,) = rendered.pod["initContainers"]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert str(Path(environment_of(container)["MODEL_DIR"]).parent) in mounts
    assert str(Path(environment_of(container)["HF_HOME"]).parent) in mounts
    command, sub, *arguments = container["args"]
    assert CliRunner().invoke(app, [command, sub, *arguments, "--help"]).exit_code == 0


def test_tasks_are_one_variable_and_name_their_models_themselves() -> None:
    """The chart sets no model beside them."""
    (path,) = (path for path in CI_FILES if path.stem == "tasks-values")
    values = values_of(path)
    environment = environment_of(render(values).worker)
    assert values["settings"]["tasks"] == json.loads(environment["ENRICHER_TASKS"])
    assert "ENRICHER_MODEL__SOURCE" not in environment
    assert not [name for name in environment if name.startswith("ENRICHER_TASKS__")]
    assert "ENRICHER_TASKS" not in environment_of(render().worker)


def test_a_model_beside_tasks_is_refused() -> None:
    """The folder would have no effect."""
    values = {"model": {"path": "/opt/ner"}, "settings": {"tasks": {"topic": {"source": "/model/topic"}}}}
    assert "model.path has no effect beside settings.tasks" in refusal(values)
