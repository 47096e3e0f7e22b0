"""The dashboard: its rows, panels and queries. A test checks the metrics' names against the instruments."""

from __future__ import annotations

from deploy.monitoring.generator.index_row import INDEX
from deploy.monitoring.generator.panels import Look, Panel, Query, Row, Unit, heatmap, lines, number, quantiles, ratio

_GREEN, _ORANGE, _RED = "green", "orange", "red"

SERVICE = Row(
    "Service level",
    (
        number(
            "Visible within 60 s, last hour",
            Unit.SHARE,
            "1 - max(job:enricher_articles_late:ratio_rate1h{@@})",
            note="Share of articles whose record was committed within 60 s of their Kafka timestamp.",
            thresholds=((0.0, _RED), (0.97, _ORANGE), (0.99, _GREEN)),
        ),
        number(
            "Error budget left, 4 weeks",
            Unit.SHARE,
            "min(job:enricher_error_budget_left:ratio_rate4w{@@})",
            note="Share of the error budget (1 % of the articles may be late) that is left; negative if overspent.",
            thresholds=((-1e6, _RED), (0.0, _ORANGE), (0.25, _GREEN)),
        ),
        number(
            "Age of the oldest record",
            Unit.SECONDS,
            "max(job:enricher_oldest_age_seconds:max{@@})",
            note="Age of the oldest record without a committed outcome, over all workers.",
            thresholds=((0.0, _GREEN), (300.0, _ORANGE), (1800.0, _RED)),
        ),
        number("Articles per second", Unit.PER_SECOND, "sum(rate(enricher_articles_total{@}[~]))"),
        number("Working workers", Unit.NUMBER, 'sum(enricher_state{@, enricher_state="working"})'),
        number(
            "Dead letters, 15 minutes",
            Unit.SHARE,
            "max(job:enricher_dead_letters:ratio_rate15m{@@})",
            note="Share of all inputs that could not be enriched.",
            thresholds=((0.0, _GREEN), (0.01, _ORANGE), (0.1, _RED)),
        ),
        lines(
            "Visible within",
            Unit.SHARE,
            ("job:enricher_articles_visible:ratio_rate5m{@@}", "{{job}} {{within}}"),
            note="Share of articles whose record was committed within this time of their Kafka timestamp.",
            top=1.0,
        ),
        quantiles("Article to committed record", "enricher_article_latency_seconds"),
        lines(
            "Error budget burn",
            Unit.NUMBER,
            ("job:enricher_error_budget_burn:rate5m{@@}", "{{job}} 5 min"),
            ("job:enricher_error_budget_burn:rate1h{@@}", "{{job}} 1 h"),
            ("job:enricher_error_budget_burn:rate6h{@@}", "{{job}} 6 h"),
            ("job:enricher_error_budget_burn:rate3d{@@}", "{{job}} 3 d"),
            note="How many times faster than allowed the error budget is used up.",
            thresholds=((0.0, _GREEN), (1.0, _ORANGE), (14.4, _RED)),
        ),
        heatmap("Latency", "enricher_article_latency_seconds", Unit.SECONDS),
    ),
)

THROUGHPUT = Row(
    "Throughput",
    (
        lines(
            "Articles by outcome",
            Unit.PER_SECOND,
            ("sum by (enricher_outcome) (rate(enricher_articles_total{@}[~]))", "{{enricher_outcome}}"),
            stacked=True,
        ),
        lines(
            "Messages read and written",
            Unit.PER_SECOND,
            (
                "sum by (messaging_destination_name) (rate(messaging_client_consumed_messages_total{@}[~]))",
                "from {{messaging_destination_name}}",
            ),
            (
                "sum by (messaging_destination_name) (rate(messaging_client_sent_messages_total{@}[~]))",
                "to {{messaging_destination_name}}",
            ),
        ),
        lines(
            "Articles per worker",
            Unit.PER_SECOND,
            ("sum by (instance) (rate(enricher_articles_total{@}[~]))", "{{instance}}"),
        ),
        lines(
            "Entities per article",
            Unit.NUMBER,
            (
                ratio(
                    "sum(rate(enricher_entities_total{@}[~]))",
                    'sum(rate(enricher_articles_total{@, enricher_outcome="enriched"}[~]))',
                ),
                "entities",
            ),
            note="If it drops although the sources did not change, the model does not work.",
        ),
        lines(
            "Dead letters by reason",
            Unit.PER_SECOND,
            (
                "sum by (enricher_stage, error_type) (rate(enricher_dead_letters_total{@}[~]))",
                "{{enricher_stage}}: {{error_type}}",
            ),
        ),
        lines(
            "Optional fields dropped",
            Unit.PER_SECOND,
            ("sum by (enricher_field) (rate(enricher_articles_fields_dropped_total{@}[~]))", "{{enricher_field}}"),
            note="The articles are enriched without them; a publisher writes another type, or too much.",
        ),
        lines(
            "Time in your own code",
            Unit.SHARE,
            (
                "sum by (enricher_transform) (rate(enricher_transform_time_seconds_total{@}[~]))",
                "{{enricher_transform}}",
            ),
            note="Share of the loop's time in `articles.transform` and `output.transform`.",
        ),
        lines(
            "Limits of dead letters",
            Unit.SHARE,
            (
                "max by (instance, enricher_limit) (enricher_dead_letters_limit_used_ratio{@})",
                "{{instance}}: {{enricher_limit}}",
            ),
            note="At 100 % a worker commits no further dead letter and ends with exit code 12.",
        ),
        quantiles("Time in the worker", "messaging_process_duration_seconds"),
    ),
)

MODEL = Row(
    "Model",
    (
        Panel(
            "Models",
            Unit.NUMBER,
            (
                Query(
                    "count by (enricher_model_name, enricher_model_digest, enricher_model_precision, enricher_provider, "
                    "enricher_device, service_version) (enricher_model_info{@})"
                ),
            ),
            note="Workers by model, precision and device. Outside a rollout, more than one line fires an alert.",
            look=Look.TABLE,
            width=24,
            height=5,
        ),
        lines(
            "Use of the model threads",
            Unit.SHARE,
            ("sum(rate(enricher_engine_busy_time_seconds_total{@}[~])) / sum(enricher_engine_concurrency{@})", "busy"),
            (
                "sum(rate(enricher_engine_starved_time_seconds_total{@}[~])) / sum(enricher_engine_concurrency{@})",
                "idle despite a backlog",
            ),
            top=1.0,
        ),
        lines(
            "Tokens computed",
            Unit.PER_SECOND,
            ("sum by (enricher_token_kind) (rate(enricher_tokens_total{@}[~]))", "{{enricher_token_kind}}"),
            stacked=True,
        ),
        lines(
            "Padding",
            Unit.SHARE,
            (
                ratio(
                    'sum(rate(enricher_tokens_total{@, enricher_token_kind="padding"}[~]))',
                    "sum(rate(enricher_tokens_total{@}[~]))",
                ),
                "padding",
            ),
            top=1.0,
        ),
        lines("Batches", Unit.PER_SECOND, ("sum by (instance) (rate(enricher_batches_total{@}[~]))", "{{instance}}")),
        lines("Windows", Unit.PER_SECOND, ("sum by (instance) (rate(enricher_windows_total{@}[~]))", "{{instance}}")),
        quantiles("Batch fill", "enricher_batch_fill_ratio", Unit.SHARE, top=1.0),
        quantiles("Wait for a full batch", "enricher_batch_wait_seconds"),
        lines(
            "Queue",
            Unit.NUMBER,
            ("sum(enricher_queue_windows{@})", "windows"),
            ("sum(enricher_queue_tokens{@})", "tokens"),
        ),
        lines(
            "Token budget of a batch",
            Unit.NUMBER,
            ("enricher_batch_budget{@}", "{{instance}}"),
            ("sum by (instance) (increase(enricher_engine_out_of_memory_total{@}[~]))", "{{instance}} out of memory"),
        ),
    ),
)

TASKS = Row(
    "Labels and tasks",
    (
        lines(
            "Label shares",
            Unit.SHARE,
            (
                ratio(
                    "sum by (enricher_task, enricher_label) (rate(enricher_labels_total{@}[~]))",
                    "on (enricher_task) group_left () (sum by (enricher_task) (rate(enricher_labels_total{@}[~])) > 0)",
                ),
                "{{enricher_task}} {{enricher_label}}",
            ),
            note="Of each task's labels. With several tasks, the shares of each add up to 1.",
            stacked=True,
        ),
        lines(
            "Label shares, 6 hours",
            Unit.SHARE,
            ("job:enricher_labels_share:ratio_increase6h{@@}", "{{job}} {{enricher_task}} {{enricher_label}}"),
            note="What the alert on label drift compares with the week before.",
            stacked=True,
        ),
        lines(
            "Articles by task and outcome",
            Unit.PER_SECOND,
            (
                "sum by (enricher_task, enricher_outcome) (rate(enricher_task_articles_total{@}[~]))",
                "{{enricher_task}} {{enricher_outcome}}",
            ),
            (
                "sum by (enricher_reason) (rate(enricher_articles_without_task_total{@}[~]))",
                "no task: {{enricher_reason}}",
            ),
            ("sum(rate(enricher_articles_unmeasured_total{@}[~]))", "in a language that was not measured"),
        ),
        lines(
            "Entities looked up in the catalogue",
            Unit.PER_SECOND,
            ("sum by (enricher_outcome) (rate(enricher_catalogue_entities_total{@}[~]))", "{{enricher_outcome}}"),
        ),
        lines("Age of the catalogue", Unit.SECONDS, ("enricher_catalogue_age_seconds{@}", "{{instance}}")),
        lines(
            "Catalogue not taken",
            Unit.NUMBER,
            ("enricher_catalogue_refused{@}", "{{instance}}"),
            note="1: a newer version is wrong, and the one before it is in use. A restart would refuse.",
        ),
    ),
)

EXACTLY_ONCE = Row(
    "Exactly once",
    (
        lines(
            "Transactions",
            Unit.PER_SECOND,
            ("sum by (enricher_outcome) (rate(enricher_transactions_total{@}[~]))", "{{enricher_outcome}}"),
        ),
        quantiles("Duration of a transaction", "messaging_client_operation_duration_seconds"),
        lines(
            "Recoveries and producers",
            Unit.NUMBER,
            ("sum(increase(enricher_recoveries_total{@}[~]))", "recoveries"),
            ("sum(increase(enricher_transactions_repeated_total{@}[~]))", "transactions made once more"),
            (
                "sum by (enricher_reason) (increase(enricher_producers_recreated_total{@}[~]))",
                "new producer: {{enricher_reason}}",
            ),
            ("sum(increase(enricher_isolations_total{@}[~]))", "partitions processed one article at a time"),
        ),
        lines(
            "Mean duration of a recovery",
            Unit.SECONDS,
            (
                ratio(
                    "sum(rate(enricher_recovery_duration_seconds_sum{@}[~]))",
                    "(sum(rate(enricher_recovery_duration_seconds_count{@}[~])) > 0)",
                ),
                "recovery",
            ),
        ),
        lines(
            "Rebalances",
            Unit.NUMBER,
            (
                "sum by (enricher_rebalance_kind) (increase(enricher_rebalances_total{@}[~]))",
                "{{enricher_rebalance_kind}}",
            ),
        ),
        lines(
            "Repeated work",
            Unit.PER_SECOND,
            ("sum(rate(enricher_articles_forgotten_total{@}[~]))", "forgotten"),
            ("sum(rate(enricher_articles_repeated_total{@}[~]))", "repeated"),
            note="Nothing is published twice.",
        ),
        lines(
            "In flight",
            Unit.NUMBER,
            ("sum by (instance) (enricher_in_flight_articles{@})", "{{instance}} in flight"),
            ("sum by (instance) (enricher_held_back_articles{@})", "{{instance}} held back"),
        ),
        lines("In flight, bytes", Unit.BYTES, ("sum by (instance) (enricher_in_flight_size_bytes{@})", "{{instance}}")),
        lines("Brokers connected", Unit.NUMBER, ("enricher_kafka_brokers{@}", "{{instance}}")),
    ),
)

BACKLOG = Row(
    "Backlog",
    (
        lines("Oldest record of each worker", Unit.SECONDS, ("enricher_oldest_age_seconds{@}", "{{instance}}")),
        lines(
            "Lag of each partition",
            Unit.NUMBER,
            (
                "max by (messaging_destination_name, messaging_destination_partition_id) (enricher_partition_lag{@})",
                "{{messaging_destination_name}}[{{messaging_destination_partition_id}}]",
            ),
        ),
        lines(
            "Offsets behind an open transaction",
            Unit.NUMBER,
            (
                "max by (messaging_destination_name, messaging_destination_partition_id) (enricher_partition_unstable{@})",
                "{{messaging_destination_name}}[{{messaging_destination_partition_id}}]",
            ),
            note="Records written in or after a publisher's open transaction. Consumers get them when it ends.",
        ),
        lines(
            "Age of the last stable offset",
            Unit.SECONDS,
            (
                (
                    "max by (messaging_destination_name, messaging_destination_partition_id) "
                    "(enricher_partition_unstable_age_seconds{@})"
                ),
                "{{messaging_destination_name}}[{{messaging_destination_partition_id}}]",
            ),
            note="Time since it moved, although there are offsets after it. Neither lag nor age of records shows this.",
        ),
        lines(
            "Partitions of the topics",
            Unit.NUMBER,
            ("max by (messaging_destination_name) (enricher_topic_partitions{@})", "{{messaging_destination_name}}"),
            note="The input topic, the output topic and the dead-letter topic should have the same number.",
        ),
        lines(
            "Partitions",
            Unit.NUMBER,
            ("sum by (instance) (enricher_partitions{@})", "{{instance}}"),
            ("job:enricher_partitions:sum{@@}", "{{job}}"),
        ),
        lines(
            "Articles that wait for a schema",
            Unit.NUMBER,
            ("sum by (instance) (enricher_schemas_waiting_articles{@})", "{{instance}}"),
        ),
        lines(
            "Partitions that wait for a schema",
            Unit.NUMBER,
            ("sum by (instance) (enricher_schemas_waiting_partitions{@})", "{{instance}}"),
            note="They are not read until the schema is here, or the wait for it is over. The others go on.",
        ),
        lines(
            "Schema not to be had for",
            Unit.SECONDS,
            ("enricher_registry_away_seconds{@}", "{{instance}}"),
            note="While it grows, the registry does not answer, or fails on one schema.",
        ),
        lines(
            "Requests to the registry",
            Unit.PER_SECOND,
            ("sum by (enricher_outcome) (rate(enricher_registry_requests_total{@}[~]))", "{{enricher_outcome}}"),
        ),
    ),
)

MACHINE = Row(
    "Machine",
    (
        lines(
            "State", Unit.NUMBER, ("sum by (enricher_state) (enricher_state{@})", "{{enricher_state}}"), stacked=True
        ),
        lines("Duration of the loop's turn", Unit.SECONDS, ("enricher_loop_turn_age_seconds{@}", "{{instance}}")),
        lines("Processor", Unit.CORES, ("rate(process_cpu_time_seconds_total{@}[~])", "{{instance}}")),
        lines("Memory", Unit.BYTES, ("process_memory_usage_bytes{@}", "{{instance}}")),
        lines("GPU", Unit.SHARE, ("hw_gpu_utilization_ratio{@}", "{{instance}} {{hw_name}}"), top=1.0),
        lines(
            "GPU memory",
            Unit.BYTES,
            ("hw_gpu_memory_usage_bytes{@}", "{{instance}} in use"),
            ("hw_gpu_memory_limit_bytes{@}", "{{instance}} total"),
        ),
    ),
)

ROWS = (SERVICE, THROUGHPUT, MODEL, TASKS, EXACTLY_ONCE, BACKLOG, INDEX, MACHINE)
"""What readers of the entities notice comes first, the machine last."""
