"""Runs kubectl and helm against one cluster."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any, TypeVar

from tools.cluster.errors import ToolsError
from tools.cluster.table import needed
from tools.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_T = TypeVar("_T")
Object = dict[str, Any]
Answer = subprocess.CompletedProcess[str]

_TIMEOUT_S = 120.0


class Client:
    """kubectl and helm as a person runs them, in `namespace`, or else where the objects say."""

    def __init__(self, kubeconfig: Path, namespace: str | None = None) -> None:
        self.kubeconfig = kubeconfig
        self.namespace = namespace

    def kubectl(self, *arguments: str, text: str | None = None) -> Answer:
        """Run kubectl with `text` as its input. Does not raise if the command fails."""
        return self._run("kubectl", arguments, text)

    def helm(self, *arguments: str) -> Answer:
        """Run helm. Does not raise if the command fails."""
        return self._run("helm", arguments, None)

    def apply(self, *objects: Object, dry_run: bool = False) -> Answer:
        """Apply objects; unknown fields are refused, as kubectl does by default."""
        text = "\n---\n".join(
            map(json.dumps, objects)
        )  # one by one: kubectl does not have the server check the fields of a List
        return self.kubectl("apply", *(["--dry-run=server"] if dry_run else []), "--filename=-", text=text)

    def get(self, kind: str, name: str) -> Object | None:
        """Read an object; None if it does not exist. Raises `ToolsError` on other errors."""
        answer = self.kubectl("get", kind, name, "--output=json", "--ignore-not-found")
        if answer.returncode:
            raise ToolsError(answer.stderr.strip())
        return json.loads(answer.stdout) if answer.stdout else None

    def all(self, kind: str, selector: str = "") -> list[Object]:
        answer = self.kubectl("get", kind, f"--selector={selector}", "--output=json")
        if answer.returncode:
            raise ToolsError(answer.stderr.strip())
        items: list[Object] = json.loads(answer.stdout)["items"]
        return items

    def _run(self, program: str, arguments: tuple[str, ...], text: str | None) -> Answer:
        command = [str(needed(program)), f"--kubeconfig={self.kubeconfig}", *arguments]
        if self.namespace is not None:
            command.append(f"--namespace={self.namespace}")
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def wait_for(what: str, ask: Callable[[], _T | None], timeout_s: float = _TIMEOUT_S) -> _T:
    """Call `ask` until its result is true, and return it; raises `ToolsError` with the last result on timeout."""
    answer: _T | None = None

    def answered() -> bool:
        nonlocal answer
        answer = ask()
        return bool(answer)

    if not wait_until(answered, timeout_s) or answer is None:
        raise ToolsError(f"waited {timeout_s:.0f} s for {what}; the last answer was {answer!r}")
    return answer
