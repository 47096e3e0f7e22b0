"""`enricher scaler`: a gRPC server that tells KEDA how many workers to run."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Annotated

import typer

from enricher.distribution import install_command
from enricher.errors import SettingsError
from enricher.operate.scaling.policy import Rules
from enricher.operate.scaling.trigger import Trigger
from enricher.operate.scaling.watching import MAX_OTHERS, Watches
from enricher.worker.build.kafka_clients import kafka_config
from enricher.worker.commands.signals import stopped_by_signals
from enricher.worker.runtime.wakeup import StopEvent
from enricher.worker.settings import load_settings

log = logging.getLogger("enricher.scaler")
_RULES = Rules()


def scaler(  # noqa: PLR0913  one for each option
    *,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 in a cluster.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one and logs it.")] = 6000,
    target_age_s: Annotated[
        float, typer.Option(min=1, help="Seconds that a record may wait before it is processed.")
    ] = _RULES.target_age_s,
    catch_up_s: Annotated[
        float,
        typer.Option(min=1, help="Seconds in which a backlog is to be worked off; a longer time needs fewer workers."),
    ] = _RULES.catch_up_s,
    max_workers: Annotated[
        int | None,
        typer.Option(min=1, show_default=False, help="Never ask for more workers. Default: one per partition."),
    ] = None,
    max_others: Annotated[
        int,
        typer.Option(
            min=0,
            help="How many other groups and topics ScaledObjects may name at one time, besides the settings' own.",
        ),
    ] = MAX_OTHERS,
    tls_certificate: Annotated[Path | None, typer.Option(help="Certificate of the server, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key, PEM.")] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(help="CA that signs KEDA's certificate, PEM: other clients are refused.")
    ] = None,
) -> None:
    """Tell KEDA how many workers to run, from the age of the oldest unprocessed record. Runs until SIGTERM.

    It is an external scaler of KEDA (gRPC). Group and topic come from the settings; the metadata of a ScaledObject may name
    others, and other ages: groupId, topic, targetAgeSeconds, catchUpSeconds, maxReplicas. It never asks for more workers
    than there are partitions. If the lag cannot be read, KEDA gets an error and keeps the present number of workers.

    It needs READ on the input topic and DESCRIBE on the group. How it decides: deploy/scaling.md.
    """
    config = kafka_config(load_settings())
    trigger = Trigger(config.group_id, ",".join(config.inputs), Rules(target_age_s, catch_up_s, max_workers))
    with (
        closing(Watches(config, max_others=max_others)) as watches,
        _serving(watches, trigger, address_of(host, port), tls_certificate, tls_key, tls_client_ca) as bound,
        stopped_by_signals() as signals,
    ):
        end = StopEvent()
        signals.stop = end.set
        log.info("group %s on %s: answering KEDA on %s", trigger.group, trigger.topic, address_of(host, bound))
        end.wait()
    log.info("ended")


def address_of(host: str, port: int) -> str:
    """The address as gRPC takes it, with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def _serving(
    watches: Watches, trigger: Trigger, address: str, certificate: Path | None, key: Path | None, client_ca: Path | None
) -> AbstractContextManager[int]:
    """The server, which gives its port. Raises SettingsError."""
    try:
        from enricher.operate.scaling.service import ExternalScaler, Tls, serving  # noqa: PLC0415  gRPC is an extra
    except ImportError as error:
        message = f"the scaler needs gRPC ({error}): {install_command('scaler')}"
        raise SettingsError(message) from error
    if (certificate or key or client_ca) and not (certificate and key):
        raise SettingsError("TLS needs both --tls-certificate and --tls-key")
    return serving(
        ExternalScaler(watches, trigger), address, Tls(certificate, key, client_ca) if certificate and key else None
    )
