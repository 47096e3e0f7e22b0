"""The cluster's certificate authority, and a certificate for each TLS endpoint. Created at every start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

if TYPE_CHECKING:
    from pathlib import Path

KEDA_NAMESPACE = "keda"
ADAPTER_SERVICE = "keda-metrics-apiserver"  # as upstream names it


def write_certificates(folder: Path) -> None:
    """Write `ca.crt`, a folder with `tls.crt` and `tls.key` per component, and the signing key for service accounts."""
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    adapter = f"{ADAPTER_SERVICE}.{KEDA_NAMESPACE}.svc"
    _write(folder, authority, None)
    _write(folder / "etcd", authority, authority.issue_cert("127.0.0.1", common_name="etcd"))
    _write(folder / "apiserver", authority, authority.issue_cert("127.0.0.1", "localhost"))
    # A client needs no host name, but Go refuses a certificate whose list of them is empty.
    admin = authority.issue_cert("localhost", common_name="admin", organization_name="system:masters")
    _write(folder / "admin", authority, admin)
    _write(folder / "front-proxy", authority, authority.issue_cert("localhost", common_name="front-proxy"))
    # Operator and adapter use one certificate for each other, as in KEDA's own manifests.
    _write(folder / "keda", authority, authority.issue_cert("127.0.0.1", "localhost", adapter, ADAPTER_SERVICE))
    _write_private(folder / "service-accounts.key", _rsa_key())


def _write(folder: Path, authority: trustme.CA, leaf: trustme.LeafCert | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    authority.cert_pem.write_to_path(folder / "ca.crt")
    if leaf is not None:
        (folder / "tls.crt").write_bytes(b"".join(part.bytes() for part in leaf.cert_chain_pems))
        _write_private(folder / "tls.key", leaf.private_key_pem.bytes())


def _write_private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def _rsa_key() -> bytes:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
