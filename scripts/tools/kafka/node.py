"""The storage of a fresh node as Kafka's own tool formats it, in a folder beside the jars.

The tool runs once for each version, in 3 s; later nodes get what it has written, with ids of their own.
"""

from __future__ import annotations

import base64
import re
import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tools.kafka.java import BROKER, Java, log_tail
from tools.kafka.keeper import SERVER_PROPERTIES
from tools.kafka.properties import HOST, render
from tools.kafka.versions import ClusterError
from tools.waiting import suspend, wait_until

META = "meta.properties"


@dataclass(frozen=True, slots=True)
class FormattedStorage:
    """A copy in the folder `kept`, which may not be there yet."""

    kept: Path

    def copy_to(self, log_folder: Path, cluster_id: str, node_id: int) -> bool:
        """Make `log_folder` the storage of a fresh node; returns whether there was something to copy."""
        if not self.kept.is_dir():
            return False
        shutil.copytree(self.kept, log_folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(META))
        text = (self.kept / META).read_text(encoding="utf-8")
        for name, value in (("cluster.id", cluster_id), ("node.id", str(node_id)), ("directory.id", new_id())):
            text = re.sub(rf"(?m)^{re.escape(name)}=.*$", f"{name}={value}", text)
        (log_folder / META).write_text(text, encoding="utf-8")  # last: a folder that has it is complete
        return True

    def keep(self, log_folder: Path) -> None:
        """Keep a copy of what the tool has just written, unless another process was quicker."""
        scratch = Path(tempfile.mkdtemp(prefix="formatted-", dir=self.kept.parent))
        try:
            shutil.copytree(log_folder, scratch, dirs_exist_ok=True)
            with suppress(OSError):
                scratch.rename(self.kept)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def new_id() -> str:
    """A UUID as Kafka writes it, 22 characters of base64, without dashes, since `-t` takes a leading one for an option."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")


START_TIMEOUT_S = 180.0  # 3 s is usual; a busy machine may take many times that
STOP_TIMEOUT_S = (
    10.0  # SIGTERM takes 1 to 2 s; the last of three nodes never leaves by itself, because it has no quorum
)
_ASK_TIMEOUT_S = 3.0
_GONE_TIMEOUT_S = 60.0  # after SIGKILL: a busy machine takes a while to free the memory


class Node:
    """One node in `folder`, listening on `port`. Created by `Cluster`; started and ended there or by a test.

    `kill`, `suspend` and `resume` act at once; `start` and `stop` wait, with a limit.
    """

    def __init__(
        self,
        folder: Path,
        properties: Mapping[str, str],
        port: int,
        java: Java,
        storage: FormattedStorage,
        log_path: Path,
    ) -> None:
        self.node_id = int(properties["node.id"])
        self.port = port
        self.address = f"{HOST}:{port}"
        self.folder = folder
        self.log_path = log_path
        self._properties_path = folder / SERVER_PROPERTIES
        self._properties = properties
        self._java = java
        self._storage = storage
        self._process: psutil.Popen | None = None

    @property
    def pid(self) -> int:
        """Process id; raises `ClusterError` if the node does not run."""
        return int(self._running_process().pid)

    @property
    def running(self) -> bool:
        """Whether the process exists, even if suspended."""
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Format new storage and start the process, without waiting for an answer."""
        if self.running:
            raise ClusterError(f"node {self.node_id} runs already")
        self._prepare()
        self._process = self._spawn(BROKER, str(self._properties_path))

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start and wait until this node answers; raises `ClusterError` with the end of its log if it does not."""
        self.launch()
        wait_until_ready([self], timeout_s)

    def sees(self, node_ids: set[int]) -> bool:
        """Whether this node answers within three seconds and knows all of `node_ids`; raises `ClusterError` if it ended."""
        if not self.running:
            raise ClusterError(f"Kafka's node {self.node_id} ended while starting. {log_tail(self.log_path)}")
        try:
            return node_ids <= set(quiet_admin(self.address).list_topics(timeout=_ASK_TIMEOUT_S).brokers)
        except KafkaException:
            return False

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """SIGTERM, then SIGKILL after the timeout; does nothing if the node does not run."""
        if not self.running:
            return
        process = self._running_process()
        process.resume()  # a suspended process would not see SIGTERM
        process.terminate()
        try:
            process.wait(timeout_s)
        except psutil.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL, and wait until the process has ended; does nothing if the node does not run."""
        if self.running:
            process = self._running_process()
            process.kill()
            process.wait(_GONE_TIMEOUT_S)

    def suspend(self) -> None:
        """SIGSTOP: connections stay open and nothing answers, like a frozen machine."""
        suspend(self._running_process())

    def resume(self) -> None:
        """SIGCONT: the process continues."""
        self._running_process().resume()

    def _running_process(self) -> psutil.Popen:
        if self._process is None or not self.running:
            raise ClusterError(f"node {self.node_id} does not run")
        return self._process

    def _prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._properties_path.write_text(render(self._properties), encoding="utf-8")
        self.log_path.write_bytes(b"")
        log_folder = Path(self._properties["log.dirs"])
        if not (log_folder / META).exists():
            self._format(log_folder)

    def _format(self, log_folder: Path) -> None:
        cluster_id = (self.folder.parent / "cluster.id").read_text(encoding="utf-8")
        if self._storage.copy_to(log_folder, cluster_id, self.node_id):
            return
        # The properties come last, as in the server's own command, so that the keeper finds this process too.
        tool = self._spawn("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self._properties_path))
        if tool.wait() != 0:
            raise ClusterError(f"Kafka could not format {log_folder}. {log_tail(self.log_path)}")
        self._storage.keep(log_folder)

    def _spawn(self, *arguments: str) -> psutil.Popen:
        return self._java.start(self.folder, self.log_path, *arguments)


def quiet_admin(addresses: str) -> AdminClient:
    """An admin client that keeps trying and logs nothing about a node that is not up yet."""
    return AdminClient({"bootstrap.servers": addresses, "log_level": 0, "reconnect.backoff.max.ms": 200})


def wait_until_ready(nodes: Sequence[Node], timeout_s: float = START_TIMEOUT_S) -> None:
    """Wait until each of `nodes` sees all of them; raises `ClusterError` on timeout or if one ended."""
    everyone, pending = {node.node_id for node in nodes}, list(nodes)

    def ready() -> bool:
        pending[:] = [node for node in pending if not node.sees(everyone)]
        return not pending

    if not wait_until(ready, timeout_s, 0.0):  # `sees` waits for an answer
        raise ClusterError(f"{pending[0].address} did not answer in {timeout_s:.0f} s: see {pending[0].log_path}")
