"""The command lines of the cluster's programs. Starts nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tools.cluster.certificates import KEDA_NAMESPACE
from tools.cluster.table import chosen, folder_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HOST = "127.0.0.1"
PORTS = (
    "etcd",
    "etcd-peer",
    "apiserver",
    "controllers",
    "scheduler",
    "operator",
    "operator-probe",
    "adapter",
    "operator-metrics",
    "adapter-metrics",
)


@dataclass(frozen=True, slots=True)
class Command:
    """One program of the cluster: its name in the table, its arguments, its additional environment."""

    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def all_commands(folder: Path) -> list[Command]:
    """All programs of a cluster in this folder; only their names are valid, because no ports are chosen yet."""
    ports = dict.fromkeys(PORTS, 0)
    first = [store(folder, ports), api_server(folder, ports)]
    return [*first, *controllers(folder, ports), *keda(folder, ports)]


def store(folder: Path, ports: Mapping[str, int]) -> Command:
    """etcd, the API server's store; it requires a certificate of this cluster."""
    client, peer = f"https://{HOST}:{ports['etcd']}", f"https://{HOST}:{ports['etcd-peer']}"
    own = folder / "certificates" / "etcd"
    return Command(
        "etcd",
        (
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            *(
                flag
                for who in ("", "peer-")
                for flag in (
                    f"--{who}client-cert-auth",
                    f"--{who}trusted-ca-file={own / 'ca.crt'}",
                    f"--{who}cert-file={own / 'tls.crt'}",
                    f"--{who}key-file={own / 'tls.key'}",
                )
            ),
            "--unsafe-no-fsync",  # only test data could be lost with the machine
            "--log-level=warn",
        ),
    )


def api_server(folder: Path, ports: Mapping[str, int]) -> Command:
    """The API server, with RBAC, default admission plugins, and aggregation for KEDA's metrics API."""
    certificates = folder / "certificates"
    own, proxy, etcd = (certificates / name for name in ("apiserver", "front-proxy", "etcd"))
    return Command(
        "kube-apiserver",
        (
            f"--etcd-servers=https://{HOST}:{ports['etcd']}",
            f"--etcd-cafile={etcd / 'ca.crt'}",
            f"--etcd-certfile={etcd / 'tls.crt'}",
            f"--etcd-keyfile={etcd / 'tls.key'}",
            f"--bind-address={HOST}",
            f"--secure-port={ports['apiserver']}",
            f"--tls-cert-file={own / 'tls.crt'}",
            f"--tls-private-key-file={own / 'tls.key'}",
            f"--client-ca-file={certificates / 'ca.crt'}",
            "--authorization-mode=RBAC",
            "--endpoint-reconciler-type=none",  # it would publish a loopback address, which Kubernetes forbids
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={certificates / 'service-accounts.key'}",
            f"--service-account-signing-key-file={certificates / 'service-accounts.key'}",
            f"--requestheader-client-ca-file={certificates / 'ca.crt'}",
            "--requestheader-allowed-names=front-proxy",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={proxy / 'tls.crt'}",
            f"--proxy-client-key-file={proxy / 'tls.key'}",
        ),
    )


def controllers(folder: Path, ports: Mapping[str, int]) -> list[Command]:
    """Controllers, scheduler, and the node simulator."""
    kubeconfig = f"--kubeconfig={folder / 'kubeconfig'}"
    certificates = folder / "certificates"
    (stages,) = chosen(["kwok-stages"])
    return [
        Command(
            "kube-controller-manager",
            (
                kubeconfig,
                f"--bind-address={HOST}",
                f"--secure-port={ports['controllers']}",
                "--leader-elect=false",
                f"--root-ca-file={certificates / 'ca.crt'}",
                f"--service-account-private-key-file={certificates / 'service-accounts.key'}",
                "--horizontal-pod-autoscaler-sync-period=1s",  # 15 s by default: tests wait for it
                # 50 s by default, after which pods on a silent node never become ready again. On a busy machine the node
                # simulator may be silent for longer; it reports every ten minutes.
                "--node-monitor-grace-period=24h",
            ),
        ),
        Command(
            "kube-scheduler",
            (kubeconfig, f"--bind-address={HOST}", f"--secure-port={ports['scheduler']}", "--leader-elect=false"),
        ),
        Command(
            "kwok",
            (
                kubeconfig,
                "--manage-all-nodes=true",
                *(f"--config={path}" for path in sorted(folder_of(stages).glob("*.yaml"))),
            ),
        ),
    ]


def keda(folder: Path, ports: Mapping[str, int]) -> list[Command]:
    """KEDA's operator, and its metrics adapter, which answers the HorizontalPodAutoscaler."""
    certificates = folder / "certificates" / "keda"
    environment = {
        "KUBECONFIG": str(folder / "kubeconfig"),
        "POD_NAMESPACE": KEDA_NAMESPACE,
        "KEDA_CLUSTER_OBJECT_NAMESPACE": KEDA_NAMESPACE,
        "WATCH_NAMESPACE": "",
    }
    operator = (
        f"--metrics-bind-address={HOST}:{ports['operator-metrics']}",
        f"--health-probe-bind-address={HOST}:{ports['operator-probe']}",
        f"--metrics-service-bind-address={HOST}:{ports['operator']}",
        f"--cert-dir={certificates}",
        "--zap-encoder=console",
    )
    adapter = (
        f"--secure-port={ports['adapter']}",
        f"--bind-address={HOST}",
        f"--port={ports['adapter-metrics']}",
        f"--metrics-service-address={HOST}:{ports['operator']}",
        f"--cert-dir={certificates}",
        f"--tls-cert-file={certificates / 'tls.crt'}",
        f"--tls-private-key-file={certificates / 'tls.key'}",
        f"--client-ca-file={certificates / 'ca.crt'}",
        *(f"--{what}-kubeconfig={folder / 'kubeconfig'}" for what in ("authentication", "authorization", "lister")),
    )
    return [Command("keda-operator", operator, environment), Command("keda-adapter", adapter, environment)]
