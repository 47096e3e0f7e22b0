"""The command `scaler`: settings and options -> a gRPC server, until a signal ends it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from enricher.commands.run.signals import stopped_by_signals
from enricher.errors import SettingsError
from enricher.runtime.wakeup import StopEvent
from enricher.scaling.policy import Rules
from enricher.scaling.trigger import Trigger
from enricher.scaling.watching import MAX_OTHERS, Watches
from enricher.settings import load_settings

if TYPE_CHECKING:
    from enricher.scaling.service import Tls

log = logging.getLogger("enricher.scaler")
_RULES = Rules()


def scaler(  # noqa: PLR0913  one for each option
    *,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 in a cluster.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one and says which.")] = 6000,
    target_age_s: Annotated[
        float, typer.Option(min=1, help="Seconds that a record may be old before it is processed.")
    ] = _RULES.target_age_s,
    catch_up_s: Annotated[
        float,
        typer.Option(min=1, help="Seconds within which what is overdue shall be gone: longer needs fewer workers."),
    ] = _RULES.catch_up_s,
    max_workers: Annotated[
        int | None, typer.Option(min=1, show_default=False, help="Never ask for more. Default: one for each partition.")
    ] = None,
    max_others: Annotated[
        int,
        typer.Option(
            min=0, help="Groups and topics that ScaledObjects may name beside the settings' own, at one time."
        ),
    ] = MAX_OTHERS,
    tls_certificate: Annotated[Path | None, typer.Option(help="Certificate of the server, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key, PEM.")] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(help="CA that signs KEDA's certificate, PEM: nobody else is let in.")
    ] = None,
) -> None:
    """Tell KEDA how many workers there should be, from the age of the oldest unprocessed record. Runs until SIGTERM.

    It is KEDA's external scaler (gRPC). The group and the topic are the settings'; a ScaledObject's metadata may name
    others, and the ages: groupId, topic, targetAgeSeconds, catchUpSeconds, maxReplicas. It never asks for more workers than
    there are partitions. What it cannot find out is an error to KEDA, which then keeps the workers there are.

    It needs READ on the input topic and DESCRIBE on the group. How it decides: deploy/scaling.md.
    """
    from enricher.app import kafka_config  # noqa: PLC0415  it loads the inference room, which --help need not wait for

    config = kafka_config(load_settings())
    trigger = Trigger(config.group_id, config.input_topic, Rules(target_age_s, catch_up_s, max_workers))
    with (
        closing(Watches(config, max_others=max_others)) as watches,
        _serving(watches, trigger, address_of(host, port), (tls_certificate, tls_key, tls_client_ca)) as bound,
        _stopped() as end,
    ):
        log.info("group %s on %s: answering KEDA on %s", trigger.group, trigger.topic, address_of(host, bound))
        end.wait()
    log.info("ended")


def address_of(host: str, port: int) -> str:
    """As gRPC takes it: an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


class _Ending(StopEvent):
    def stop(self) -> None:
        self.set()


@contextmanager
def _stopped() -> Iterator[_Ending]:
    ending = _Ending()
    with stopped_by_signals() as signals:
        signals.stop(ending)
        yield ending


@contextmanager
def _serving(
    watches: Watches, trigger: Trigger, address: str, files: tuple[Path | None, Path | None, Path | None]
) -> Iterator[int]:
    try:
        from enricher.scaling.service import ExternalScaler, serving  # noqa: PLC0415  an extra: not everybody has gRPC
    except ImportError as error:
        message = f"the scaler needs gRPC: install the extra `scaler`, `pip install '.[scaler]'` ({error})"
        raise SettingsError(message) from error

    with serving(ExternalScaler(watches, trigger), address, _tls(*files)) as port:
        yield port


def _tls(certificate: Path | None, key: Path | None, client_ca: Path | None) -> Tls | None:
    from enricher.scaling.service import Tls  # noqa: PLC0415  an extra: not everybody has gRPC

    if certificate and key:
        return Tls(certificate, key, client_ca)
    if certificate or key or client_ca:
        raise SettingsError("TLS needs both --tls-certificate and --tls-key")
    return None
