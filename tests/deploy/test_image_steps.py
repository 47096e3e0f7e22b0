"""The two programs that run while an image is built: which graphs and which of CUDA's libraries get into it."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from support.models import MINILM_FOLDER

from enricher.worker.inference.run.model import open_model, prepare_variant
from enricher.worker.inference.run.selection import variant_named

FOLDER = Path(__file__).parents[2] / "deploy" / "docker"
LIBRARIES = (
    "cu13/lib/libcublas.so.13",
    "cu13/lib/libcublasLt.so.13",
    "cu13/lib/libcudart.so.13",
    "cu13/lib/libcurand.so.10",
    "cu13/lib/libnvJitLink.so.13",
    "cu13/lib/libnvrtc-builtins.so.13.5",
    "cu13/lib/libnvrtc.so.13",
    "cudnn/lib/libcudnn.so.9",
    "cudnn/lib/libcudnn_ops.so.9",
)
BESIDES = (
    "cu13/include/cuda.h",
    "cu13/lib/libcudart_static.a",
    "cu13/lib/libcufft.so.12",
    "cu13/lib/libnvblas.so.13",
    "cudnn/include/cudnn.h",
)

needs_ldd = pytest.mark.skipif(not Path("/usr/bin/ldd").exists(), reason="CUDA's libraries are looked through with ldd")


def module(name: str) -> ModuleType:
    """One of the two programs, which are in no package."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture
def site_packages(tmp_path: Path) -> Path:
    """NVIDIA's packages in small: a real library under the names that matter, and what comes beside them."""
    real = next(path for path in sorted(Path("/lib").glob("*-linux-gnu/libz.so.1")) if path.is_file())
    providers = ("libonnxruntime_providers_cuda.so", "libonnxruntime_providers_tensorrt.so")
    targets = [tmp_path / "onnxruntime" / "capi" / name for name in providers]
    for target in [*targets, *(tmp_path / "nvidia" / name for name in (*LIBRARIES, *BESIDES))]:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(real, target)
    return tmp_path


def keep(site_packages: Path) -> subprocess.CompletedProcess[str]:
    """Run what the build of the CUDA image runs."""
    command = [sys.executable, str(FOLDER / "keep_cuda_libraries.py"), str(site_packages)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@needs_ldd
def test_of_cuda_only_what_can_be_loaded_stays(site_packages: Path) -> None:
    """Headers, static libraries, Fourier transforms and another provider go; the parts of cuDNN stay."""
    told = keep(site_packages)
    assert (0, "") == (told.returncode, told.stderr)
    left = {path.relative_to(site_packages / "nvidia").as_posix() for path in (site_packages / "nvidia").rglob("*.*")}
    assert set(LIBRARIES) == left
    assert ["libonnxruntime_providers_cuda.so"] == [path.name for path in (site_packages / "onnxruntime").rglob("*.so")]
    assert not (site_packages / "nvidia" / "cudnn" / "include").exists()
    assert all(Path(name).name in told.stdout for name in LIBRARIES)


@needs_ldd
def test_a_build_ends_where_a_library_of_cuda_is_missing(site_packages: Path) -> None:
    """As when a newer package has another name for it."""
    next((site_packages / "nvidia").rglob("libcurand.so*")).unlink()
    told = keep(site_packages)
    assert (1, "no libcurand.so\n") == (told.returncode, told.stderr)


def test_the_forms_that_may_serve_are_built_beside_the_model(tmp_path: Path) -> None:
    """int8 and bf16, which have reports that passed, and fp32. A worker then builds nothing."""
    folder = shutil.copytree(MINILM_FOLDER, tmp_path / "model", ignore=shutil.ignore_patterns("graphs"))
    checkpoint = open_model(folder)
    built = module("bake_graphs").bake(checkpoint, "cpu")
    plain = variant_named("cpu", "fp32").name
    assert ["openvino-int8", "openvino-bf16", plain] == [path.name.split("-", 1)[1].rsplit("-", 1)[0] for path in built]
    assert {0o755} == {path.stat().st_mode & 0o777 for path in (*built, *{path.parent for path in built})}
    weights = [path / "model.weights" for path in built]
    assert weights[1].samefile(weights[2])
    variant = module("bake_graphs").eligible(checkpoint, "cpu")[-1]
    cache = tmp_path / "cache"
    assert built[-1] / "model.onnx" == prepare_variant(checkpoint, variant, "cpu", cache_dir=cache).onnx_path
    assert not cache.exists()


def test_without_a_gpu_an_image_gets_the_graphs_that_one_serves(tmp_path: Path) -> None:
    """fp16, which has a report, and packed fp32: a worker with a GPU then builds nothing. Without the report fp32 alone."""

    def names(folder: Path) -> list[str]:
        return [each.name for each in module("bake_graphs").eligible(open_model(folder), "cuda")]

    assert ["packed-fp16", "packed-cuda-fp32"] == names(MINILM_FOLDER)
    unproven = shutil.copytree(MINILM_FOLDER, tmp_path / "model", ignore=shutil.ignore_patterns("gate-packed-fp16.*"))
    assert ["packed-cuda-fp32"] == names(unproven)
