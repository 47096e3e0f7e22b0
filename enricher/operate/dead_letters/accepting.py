"""The command `dead-letters accept`: lets workers read on where one ended at its limit of dead letters."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Annotated

import typer
from confluent_kafka import TopicPartition

from enricher.operate.inspect.inspector import Inspector
from enricher.worker.build.kafka_clients import kafka_config
from enricher.worker.commands.console import data_console
from enricher.worker.kafka.shared.client_errors import Complaint
from enricher.worker.kafka.shared.lone_consumers import commit_as_outsider
from enricher.worker.records import ReachedLimit
from enricher.worker.rules.commit_metadata import CommitMetadata
from enricher.worker.settings import load_settings


def dead_letters_accept(
    group: Annotated[
        str, typer.Argument(metavar="GROUP", help="Consumer group of the workers that ended with code 12.")
    ],
) -> None:
    """Let workers read on where one of their group ended at its limit of dead letters.

    Run it once the cause is gone, or if the articles there should become dead letters. Stop the workers before: the offsets
    of a group with members are not touched. Only the note beside the offsets is removed, so nothing is skipped or repeated;
    the workers count from 0 again.

    Exit code: 0, 1 if the group has members, 2 for settings, 4 for the broker. It needs READ on the input topics and on the
    group.
    """
    config = replace(kafka_config(load_settings()), group_id=group)
    complaint = Complaint(config)
    # The broker refuses offsets from outside while the group has members. So those that are read here, with no transaction
    # pending that may change them, are still the same when they are committed.
    with closing(Inspector(config, complaint, stable=True)) as ask:
        committed = [tp for topic in config.inputs for tp in ask.committed_offsets(topic)]
    accepted = {}
    for tp in committed:
        metadata = CommitMetadata.decode(tp.metadata)
        if (reached := metadata.reached_limit) != ReachedLimit():
            cleared = replace(metadata, reached_limit=ReachedLimit()).encode()
            line = f"{tp.topic}[{tp.partition}] offset {tp.offset}: accepted ({reached.reason})"
            accepted[line] = TopicPartition(tp.topic, tp.partition, tp.offset, metadata=cleared)
    if accepted:
        commit_as_outsider(config, complaint, [*accepted.values()])
    for line in accepted or [f"no worker of '{group}' ended at a limit of dead letters"]:
        data_console().print(line, markup=False, soft_wrap=True)
