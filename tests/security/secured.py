"""A broker that requires authentication and a right for every operation, and the certificates for it.

One node with four listeners: plain text for the tests themselves (a super user), TLS, TLS with passwords (SCRAM), and TLS
that asks clients for certificates.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives import serialization
from support.patience import PATIENCE_S

from tools.kafka import Cluster
from tools.kafka.properties import HOST

KEY_PASSWORD = "canary-key-5a1f90"
USER, PASSWORD = "worker", "canary-password-c07d3e"
"""The user of the SCRAM listener. On the mutual TLS listener the certificate has the same name."""
LISTENERS = {"TLS": "SSL", "PASSWORDS": "SASL_SSL", "CERTIFICATES": "SSL"}
TOKENS = "TOKENS"
"""The listener that takes tokens. It checks no signature: an identity provider is no part of these tests."""
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

Properties = dict[str, str]


@dataclass(frozen=True, slots=True)
class Papers:
    """Files in PEM, as Kafka and its clients take them: the CA, the broker's and the clients' certificates and keys."""

    folder: Path

    @property
    def ca(self) -> str:
        """The CA that signed all valid certificates."""
        return str(self.folder / "ca.pem")

    @property
    def other_ca(self) -> str:
        """A CA that the broker does not trust."""
        return str(self.folder / "other-ca.pem")

    def certificate(self, name: str) -> Properties:
        """Client properties for the certificate `name`, whose key is encrypted with a password."""
        return {
            "ssl.certificate.location": str(self.folder / f"{name}.pem"),
            "ssl.key.location": str(self.folder / f"{name}.key"),
            "ssl.key.password": KEY_PASSWORD,
        }


def write_papers(folder: Path) -> Papers:
    """Create the CAs and all certificates."""
    ca, other_ca = trustme.CA(), trustme.CA()
    ca.cert_pem.write_to_path(folder / "ca.pem")
    other_ca.cert_pem.write_to_path(folder / "other-ca.pem")
    past = dt.datetime.now(dt.UTC) - dt.timedelta(days=2)
    broker = ca.issue_cert(HOST)
    # The JVM takes certificate and key from one file, and no other form of the key than PKCS #8.
    chain = b"".join(blob.bytes() for blob in broker.cert_chain_pems)
    (folder / "broker.pem").write_bytes(_pkcs8(broker, None) + chain)
    clients = {
        "client": ca.issue_cert("client", common_name=USER),
        "expired": ca.issue_cert("client", common_name=USER, not_before=past - dt.timedelta(days=1), not_after=past),
    }
    for name, certificate in clients.items():
        (folder / f"{name}.pem").write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        (folder / f"{name}.key").write_bytes(_pkcs8(certificate, KEY_PASSWORD))
    return Papers(folder)


def _pkcs8(certificate: trustme.LeafCert, password: str | None) -> bytes:
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    lock = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)


@dataclass(frozen=True, slots=True)
class Secured:
    """The running broker."""

    cluster: Cluster
    papers: Papers
    admin: AdminClient
    """A client that may do everything."""

    @property
    def admin_address(self) -> str:
        """The listener of the tests themselves, where everything is allowed."""
        return self.cluster.bootstrap_servers

    def way_in(self, listener: str) -> Properties:
        """The client properties with which `USER` connects to a listener."""
        ways: dict[str, Properties] = {
            TOKENS: {},
            "TLS": {"security.protocol": "SSL"},
            "PASSWORDS": {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": USER,
                "sasl.password": PASSWORD,
            },
            "CERTIFICATES": {"security.protocol": "SSL", **self.papers.certificate("client")},
        }
        return {"ssl.ca.location": self.papers.ca, **ways[listener]}


@contextmanager
def secured_broker(papers: Papers) -> Iterator[Secured]:
    """Start the broker with the SCRAM user."""
    with Cluster(nodes=1, listeners={**LISTENERS, TOKENS: "SASL_SSL"}, properties=server_properties(papers)) as cluster:
        secured = Secured(cluster, papers, AdminClient({"bootstrap.servers": cluster.bootstrap_servers}))
        _add_user(secured, USER, PASSWORD)
        cluster.warm_up()
        yield secured


def server_properties(papers: Papers) -> Mapping[str, str]:
    """The broker's properties for authentication and authorization."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": (papers.folder / "broker.pem").as_posix(),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": (papers.folder / "ca.pem").as_posix(),
        "listener.name.certificates.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^.*CN=([^,]+).*$/$1/,DEFAULT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.tokens.oauthbearer.sasl.jaas.config": f'{_OAUTH} required unsecuredLoginStringClaim_sub="broker";',
        # A connection ends with its token, unless the client shows a new one before.
        "listener.name.tokens.oauthbearer.connections.max.reauth.ms": "3600000",
        "listener.name.passwords.scram-sha-512.sasl.jaas.config": _SCRAM,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "false",
        # Whoever shows no name: the tests, by plain text, and the TLS listener, where only the wire is tested.
        "super.users": "User:ANONYMOUS",
    }


def _add_user(secured: Secured, name: str, password: str) -> None:
    credentials = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    user = UserScramCredentialUpsertion(name, credentials, password.encode())
    for future in secured.admin.alter_user_scram_credentials([user]).values():
        future.result(PATIENCE_S)
