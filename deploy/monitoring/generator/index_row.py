"""The dashboard's row about `enricher index run`. Its processes are selected with their group, not by worker."""

from __future__ import annotations

from deploy.monitoring.generator.panels import Row, Unit, lines

INDEX = Row(
    "Search index",
    (
        lines(
            "Documents",
            Unit.PER_SECOND,
            ("sum(rate(enricher_index_records_total{@@}[~]))", "read"),
            ("sum by (enricher_outcome) (rate(enricher_index_documents_total{@@}[~]))", "{{enricher_outcome}}"),
        ),
        lines(
            "Behind the output topic",
            Unit.NUMBER,
            ("sum by (instance) (enricher_index_partition_lag{@@})", "{{instance}}"),
            ("sum by (instance) (enricher_index_partitions{@@})", "{{instance}} partitions"),
        ),
        lines(
            "Index takes nothing for",
            Unit.SECONDS,
            ("enricher_index_stuck_seconds{@@}", "{{instance}}"),
            note="While it grows, the probe of readiness fails, and offsets are not committed.",
        ),
        lines(
            "Documents sent again",
            Unit.PER_SECOND,
            ("sum by (error_type) (rate(enricher_index_retries_total{@@}[~]))", "{{error_type}}"),
            ("sum(rate(enricher_index_rebalances_total{@@}[~]))", "rebalances"),
        ),
        lines(
            "From the record to the index",
            Unit.SECONDS,
            *(
                (
                    f"histogram_quantile({share}, sum by (le) (rate(enricher_index_{name}_seconds_bucket{{@@}}[~])))",
                    legend,
                )
                for name, share, legend in (
                    ("latency", 0.5, "visible p50"),
                    ("latency", 0.99, "visible p99"),
                    ("bulk_duration", 0.5, "request p50"),
                    ("bulk_duration", 0.99, "request p99"),
                )
            ),
        ),
        lines(
            "Bulk requests",
            Unit.NUMBER,
            ("enricher_index_bulk_limit{@@}", "{{instance}} at most"),
            ("enricher_index_in_flight_documents{@@}", "{{instance}} in hand"),
        ),
        lines("Memory of documents in hand", Unit.BYTES, ("enricher_index_in_flight_size_bytes{@@}", "{{instance}}")),
        lines(
            "State of indexers",
            Unit.NUMBER,
            ("sum by (enricher_state) (enricher_index_state{@@})", "{{enricher_state}}"),
            stacked=True,
        ),
    ),
)
