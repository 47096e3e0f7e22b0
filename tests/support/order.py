"""The slowest test files.

They start first, so that the last process does not run alone at the end. `--quick` skips the slow ones without a broker.
"""

LONGEST_FIRST = (
    "pipeline/test_formats.py",
    "deploy/test_prometheus_scrape.py",
    "scripts/chaos/test_faults.py",
    "security/test_rights.py",
    "kafka/test_processes.py",
    "kafka/test_crash_points.py",
    "scripts/chaos/test_fencing.py",
    "kafka/test_absent_brokers.py",
    "health/test_health_run.py",
    "kafka/test_exactly_once.py",
    "scripts/kafka/test_service.py",
    "kafka/test_killing_record.py",
    "scripts/chaos/test_coordinator_gone.py",
    "verify/test_verify_command.py",
    "scaling/test_scaler_service.py",
    "kafka/test_topic_made_again.py",
    "kafka/test_damaged_log.py",
    "kafka/test_oldest_broker.py",
    "kafka/test_hostile_sizes.py",
    "scripts/kafka/test_cluster.py",
    "scripts/chaos/test_trials_in_silence.py",
)
"""By measured time, longest first. The list only decides the order."""

SLOW = (
    "commands/test_cli.py",
    "commands/test_doctor.py",
    "commands/test_enrich.py",
    "commands/test_home.py",
    "commands/test_model_check.py",
    "commands/test_model_prepare.py",
    "commands/test_model_tune.py",
    "commands/test_run.py",
    "deploy/test_alerts.py",
    "deploy/test_image_steps.py",
    "fuzz/test_fuzz_spans.py",
    "gate/test_gate_check.py",
    "health/test_health_run.py",
    "inference/test_beginnings.py",
    "inference/test_external.py",
    "inference/test_graph.py",
    "inference/test_memory.py",
    "inference/test_openvino.py",
    "inference/test_packed_benchmark.py",
    "kafka/test_unreadable_batch.py",
    "pipeline/test_decoding_rule.py",
    "pipeline/test_invariance.py",
    "scripts/bench/test_peers.py",
    "scripts/soak/test_hostile.py",
    "telemetry/test_otlp.py",
    "worker/test_worker_long_articles.py",
)
"""Tests without a broker that start processes, need built tools, or take many seconds: `scripts/test --quick` skips them."""
