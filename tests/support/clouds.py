"""A stand-in for what gives a pod its identity: the metadata servers of three clouds, Amazon's STS, and an OIDC provider.

It checks requests as the real ones do, as far as their documents say; anything else is answered with 404.
"""

from __future__ import annotations

import json
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from support.aws import KEY, SECRET, SESSION
from support.http_serving import QuietHandler, http_server
from support.patience import PATIENCE_S

ROLE, WEB_TOKEN = "arn:aws:iam::123456789012:role/enricher", "canary-web-identity-3b1a"
ACCOUNT = "enricher@project.iam.gserviceaccount.com"
HEADER = "canary-identity-header-9d20"
_STS = """<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>
<SessionToken>{session}</SessionToken><Expiration>{until}</Expiration></Credentials></AssumeRoleWithWebIdentityResult>
<ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></AssumeRoleWithWebIdentityResponse>"""
_DENIED = """<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>
<Code>AccessDenied</Code><Message>Not authorized to perform sts:AssumeRoleWithWebIdentity</Message></Error>
<RequestId>1</RequestId></ErrorResponse>"""

Answer = tuple[int, str]


@dataclass(slots=True)
class Cloud:
    """How it behaves, and what it was asked. `token`: makes the access token of Azure and Google."""

    folder: Path
    token: Callable[[float], str] = lambda _expires_s: "canary-access-token-e41c"
    life_s: float = 3600.0
    hangs: bool = False
    refuses: bool = False
    url: str = ""
    asked: list[str] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)

    def environment(self, kind: str) -> dict[str, str]:
        """The variables that a pod has. `kind`: `irsa`, `ec2`, `azure` or `gcp`."""
        nothing = str(self.folder / "no-such-file")
        no_files = {"AWS_CONFIG_FILE": nothing, "AWS_SHARED_CREDENTIALS_FILE": nothing, "HOME": str(self.folder)}
        web_token = self.folder / "web-identity"
        web_token.write_text(WEB_TOKEN, "utf-8")
        return (
            no_files
            | {
                "irsa": {
                    "AWS_ROLE_ARN": ROLE,
                    "AWS_WEB_IDENTITY_TOKEN_FILE": str(web_token),
                    "AWS_REGION": "eu-west-1",
                    "AWS_ENDPOINT_URL_STS": self.url,
                },
                "ec2": {"AWS_EC2_METADATA_SERVICE_ENDPOINT": self.url, "AWS_REGION": "eu-west-1"},
                "azure": {"IDENTITY_ENDPOINT": f"{self.url}/msi/token", "IDENTITY_HEADER": HEADER},
                "gcp": {
                    "GCE_METADATA_HOST": urlsplit(self.url).netloc,
                    "GCE_METADATA_IP": urlsplit(self.url).netloc,
                    "GCE_METADATA_TIMEOUT": "1",
                    "CLOUDSDK_CONFIG": str(self.folder),
                },
            }[kind]
        )

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:  # noqa: C901, PLR0911, PLR0912  one case for each
        """Answer a request as the servers do."""
        path, query = urlsplit(target).path, {key: value[0] for key, value in parse_qs(urlsplit(target).query).items()}
        ends_s = time.time() + self.life_s
        until = datetime.fromtimestamp(ends_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        role = "/latest/meta-data/iam/security-credentials/"
        v2 = headers.get("x-aws-ec2-metadata-token") == "v2"
        google = headers.get("metadata-flavor") == "Google"
        account = "/computeMetadata/v1/instance/service-accounts/"
        match method, path:
            case "POST", "/":
                form = {key: value[0] for key, value in parse_qs(body.decode()).items()}
                wanted = {"Action": "AssumeRoleWithWebIdentity", "RoleArn": ROLE, "WebIdentityToken": WEB_TOKEN}
                if self.refuses or not wanted.items() <= form.items():
                    return 403, _DENIED
                return 200, _STS.format(key=KEY, secret=SECRET, session=SESSION, until=until)
            case "POST", "/token" if "basic" in headers.get("authorization", "").lower():
                right = headers["authorization"] == f"Basic {b64encode(f'enricher:{HEADER}'.encode()).decode()}"
                if self.refuses or not right or b"grant_type=client_credentials" not in body:
                    return 401, json.dumps({"error": "invalid_client"})
                made = {"access_token": self.token(ends_s), "expires_in": int(self.life_s), "token_type": "Bearer"}
                return 200, json.dumps(made)
            case "PUT", "/latest/api/token" if "x-aws-ec2-metadata-token-ttl-seconds" in headers:
                return 200, "v2"
            case "GET", found if found == role and v2:
                return 200, "enricher"
            case "GET", found if found == f"{role}enricher" and v2:
                keys = {"AccessKeyId": KEY, "SecretAccessKey": SECRET, "Token": SESSION, "Expiration": until}
                return 200, json.dumps({"Code": "Success", **keys})
            case "GET", "/msi/token" if headers.get("x-identity-header") == HEADER:
                if self.refuses:
                    return 400, json.dumps({"error": "invalid_client", "error_description": "AADSTS7000215: no"})
                return 200, json.dumps(
                    {
                        "access_token": self.token(ends_s),
                        "expires_on": str(int(ends_s)),
                        "resource": query["resource"],
                        "token_type": "Bearer",
                    }
                )
            case "GET", ("" | "/") if google:
                return 200, ""
            case "GET", "/computeMetadata/v1/project/project-id" if google:
                return 200, "project"
            case "GET", "/computeMetadata/v1/universe/universe-domain" if google:
                return 200, "googleapis.com"
            case "GET", found if google and found.startswith(account) and found.endswith("/token"):
                made = {"access_token": self.token(ends_s), "expires_in": int(self.life_s), "token_type": "Bearer"}
                return (403, "refused") if self.refuses else (200, json.dumps(made))
            case "GET", found if google and found.startswith(account):
                return 200, json.dumps({"email": ACCOUNT, "scopes": [], "aliases": ["default"]})
        return 404, "no such path, or a header is missing"


@contextmanager
def serving_cloud(folder: Path) -> Iterator[Cloud]:
    """Serve while the body runs."""
    cloud = Cloud(folder)

    class Handler(QuietHandler):
        def _serve(self) -> None:
            body = self.content()
            cloud.asked.append(f"{self.command} {self.path}")
            if cloud.hangs:
                cloud.closing.wait(PATIENCE_S)
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, text = cloud.answer(self.command, self.path, headers, body)
            kind = "application/json" if text.startswith("{") else "text/xml" if text.startswith("<") else "text/plain"
            self.answer(status, text.encode(), Content_Type=kind, Metadata_Flavor="Google")

        do_GET = do_POST = do_PUT = _serve  # noqa: N815  http.server's names

    with http_server(Handler) as cloud.url:
        try:
            yield cloud
        finally:
            cloud.closing.set()
