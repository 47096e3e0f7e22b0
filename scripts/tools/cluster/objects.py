"""The cluster's initial objects: simulated nodes, and the route to KEDA's metrics."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from tools.cluster.certificates import ADAPTER_SERVICE, KEDA_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Object = dict[str, Any]

PLAIN_NODES, GPU_NODES, GPUS_PER_NODE = 2, 2, 2
_RUNTIME_CLASS: Object = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "nvidia"},
    "handler": "nvidia",
}
"""NVIDIA's operator creates it: pods that name a missing class are refused."""


def kubeconfig(certificates: Path, port: int) -> str:
    """The administrator's kubeconfig, with certificates embedded (JSON is YAML)."""

    def embedded(name: str) -> str:
        return base64.b64encode((certificates / name).read_bytes()).decode()

    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority-data": embedded("ca.crt")}
    user = {"client-certificate-data": embedded("admin/tls.crt"), "client-key-data": embedded("admin/tls.key")}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "enricher", "cluster": cluster}],
        "users": [{"name": "admin", "user": user}],
        "contexts": [{"name": "enricher", "context": {"cluster": "enricher", "user": "admin"}}],
        "current-context": "enricher",
    }
    return json.dumps(document, indent=1)


def first_objects(certificates: Path, ports: Mapping[str, int]) -> str:
    """The objects to apply before any controller runs, as one JSON list."""
    nodes = [_node(f"plain-{number}", gpus=0) for number in range(PLAIN_NODES)]
    nodes += [_node(f"gpu-{number}", gpus=GPUS_PER_NODE) for number in range(GPU_NODES)]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": KEDA_NAMESPACE}}
    items = [*nodes, namespace, _RUNTIME_CLASS, *_metrics_api(certificates, ports["adapter"])]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _node(name: str, gpus: int) -> Object:
    resources = {"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    if gpus:
        resources["nvidia.com/gpu"] = str(gpus)
        # The labels that NVIDIA's operator sets.
        labels.update({"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": "NVIDIA-L4"})
    # The taint with which clouds keep pods without GPU requests off these nodes.
    taints = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}] if gpus else []
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {"allocatable": resources, "capacity": resources},
    }


def _metrics_api(certificates: Path, port: int) -> list[Object]:
    """Route the API server to the adapter, which is not a pod, through a name that means this machine."""
    service = {"name": ADAPTER_SERVICE, "namespace": KEDA_NAMESPACE}
    bundle = base64.b64encode((certificates / "ca.crt").read_bytes()).decode()
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": service,
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"name": "https", "port": port}]},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": "v1beta1.external.metrics.k8s.io"},
            "spec": {
                "service": {**service, "port": port},
                "group": "external.metrics.k8s.io",
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "caBundle": bundle,
            },
        },
    ]
