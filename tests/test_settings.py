"""The settings: where they come from, which one wins, and that every mistake is named before anything is connected."""

from __future__ import annotations

import ctypes
import logging
import re
from pathlib import Path

import confluent_kafka
import pytest

from enricher.errors import SettingsError
from enricher.worker.commands.topic_options import with_one_input
from enricher.worker.kafka.properties import KafkaConfig, check_properties
from enricher.worker.settings import Settings, load_settings, variable_name
from enricher.worker.wiring.kafka_clients import kafka_config

SECRET = "hunter2-correct-horse"
_LIBRARIES = sorted((Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka*.so*"))


def write(name: str, text: str) -> None:
    """A file in the current folder, which is the test's own."""
    Path(name).write_text(text, "utf-8")


def mistake() -> str:
    """What loading the settings complains of."""
    with pytest.raises(SettingsError) as caught:
        load_settings()
    return str(caught.value)


def test_input_topics_have_an_order_and_may_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What everything asks for, whether one is named or several; a command may ask for one of them."""
    assert ("articles",) == load_settings().kafka.inputs
    monkeypatch.setenv("ENRICHER_KAFKA__INPUT_TOPICS", '["now", "later"]')
    settings = load_settings()
    assert ("now", "later") == settings.kafka.inputs
    assert ("now", ("later",)) == (kafka_config(settings).input_topic, kafka_config(settings).other_inputs)
    assert ("later",) == with_one_input(settings, "later").kafka.inputs
    for topic, said in ((None, "choose one with --input, of now, later"), ("articles", "no input topic")):
        with pytest.raises(SettingsError, match=said):
            with_one_input(settings, topic)


def test_stronger_sources_win_field_by_field(monkeypatch: pytest.MonkeyPatch) -> None:
    """A TOML file, above it the environment, which hides the fields that it names, not their group.

    The TOML file may begin with a byte order mark, which some editors write.
    """
    write("enricher.toml", '\ufeff[kafka]\ninput_topic = "toml"\noutput_topic = "toml"\n')
    for name in ("GROUP_ID", "OUTPUT_TOPIC"):
        monkeypatch.setenv(f"ENRICHER_KAFKA__{name}", "environment")
    kafka = load_settings().kafka
    assert ("toml", "environment", "environment") == (kafka.input_topic, kafka.group_id, kafka.output_topic)


def set_up(monkeypatch: pytest.MonkeyPatch, source: str, text: str) -> None:
    """Let a source have this text: the TOML file, or a variable of the environment in each line."""
    if source == "toml":
        write("enricher.toml", text)
    for line in text.splitlines() if source != "toml" else ():
        name, _, value = line.partition("=")
        monkeypatch.setenv(name, value)


NEAREST = "no such setting; did you mean ENRICHER_KAFKA__GROUP_ID? (see 'enricher settings', or deploy/upgrading.md)"
UNKNOWN = [
    (f"ENRICHER_KAFKAA__GROUP_ID={SECRET}", f"ENRICHER_KAFKAA__GROUP_ID: {NEAREST}"),
    (f"ENRICHER_KAFKA_GROUP_ID={SECRET}", f"ENRICHER_KAFKA_GROUP_ID: {NEAREST}"),
    (f"ENRICHER_KAFKA__GRUP_ID={SECRET}", f"ENRICHER_KAFKA__GRUP_ID: {NEAREST}"),
    (f"ENRICHER_KAFKA__SASL_PASSWORD={SECRET}", "ENRICHER_KAFKA__SASL_PASSWORD: no such setting (see"),
    (f"ENRICHER_FORMAT={SECRET}", "ENRICHER_FORMAT: no such setting (see"),
    (f"ENRICHER_TASKS__A={SECRET}", "ENRICHER_TASKS__A: no such setting"),
]
"""A wrong letter, one underscore instead of two. Of a name like none or several nothing is guessed."""
WRONG_PROPERTIES = [
    (f'ENRICHER_KAFKA__PROPERTIES={{"sasl.password": "{SECRET}"', "ENRICHER_KAFKA__PROPERTIES: not JSON"),
    (f"ENRICHER_KAFKA__PROPERTIES={SECRET}", "ENRICHER_KAFKA__PROPERTIES: not JSON"),
    (f'ENRICHER_KAFKA__PROPERTIES={{"sasl.password": ["{SECRET}"]}}', "sasl.password: Input should be a valid string"),
]
"""The most likely slip with the most secret setting; a property may have one of several types."""
WRONG_VARIABLES = [
    ('ENRICHER_KAFKA__INPUT_TOPICS=["now", "now"]', "must differ"),
    ('ENRICHER_KAFKA__INPUT_TOPICS=["now", "entities"]', "must differ"),
    ('ENRICHER_KAFKA__INPUT_TOPICS=["now"]\nENRICHER_KAFKA__INPUT_TOPIC=articles', "both set"),
    ("ENRICHER_CONFIG=missing.toml", "ENRICHER_CONFIG names missing.toml, which is not a file"),
    (f"ENRICHER_CONFIG={'a' * 5_000}", "aaaa: File name too long"),
    (
        f"ENRICHER_KAFKA__BOOTSTRAP_SERVERS=SASL_SSL://user:{SECRET}@a:9093",
        'write host:port without a scheme, such as broker:9092, and {"security.protocol": "SASL_SSL"} in',
    ),
    ("ENRICHER_KAFKA__SESSION_TIMEOUT_S=soon", "ENRICHER_KAFKA__SESSION_TIMEOUT_S"),
    ("ENRICHER_MODEL__CONCURRENCY=0\nENRICHER_BATCHING__BUCKET_EDGES=[]", "CONCURRENCY", "BUCKET_EDGES"),
    ("ENRICHER_KAFKA__TRANSACTION_TIMEOUT_S=30", "kafka.transaction_timeout_s", "kafka.session_timeout_s"),
    ("ENRICHER_DEAD_LETTERS__MAX_RATIO=0.0005", "dead_letters.max_ratio", "at least one article"),
    ("ENRICHER_WORKER__STALL_TIMEOUT_S=5", "worker.stall_timeout_s", "kafka.request_timeout_s"),
    *(
        (f"ENRICHER_BATCHING__BUCKET_EDGES={wrong}", "batching.bucket_edges")
        for wrong in ("[2, 1]", "[1, 1]", "[0, 1]")
    ),
    ("ENRICHER_KAFKA__INPUT_TOPIC=entities", "input", "output"),
    ("ENRICHER_CATALOGUE__FIND=text", "no effect without catalogue.path"),
    ("ENRICHER_KAFKA__DEAD_LETTER_TOPIC=articles", "input", "dead-letter"),
    ('ENRICHER_ARTICLES__FIELDS={"body": "/a~b"}', "ENRICHER_ARTICLES__FIELDS: ", "write ~0 for ~, and ~1 for a slash"),
    (
        'ENRICHER_ARTICLES__METADATA={"section": "desk"}',
        "ENRICHER_ARTICLES__METADATA: ",
        "'desk' is not a JSON Pointer",
    ),
    *(
        (f"ENRICHER_ARTICLES__DELETED={wrong}", "ENRICHER_ARTICLES__DELETED: ", said)
        for wrong, said in (
            ('{"field": "/rows/*/op", "values": ["d"]}', "only body is made of all items of a list"),
            ('{"field": "/op", "values": ["d", 1.5]}', "values: one or more strings"),
            ('{"field": "/op", "values": ["d"], "ids": "/id"}', "ids: no such setting"),
        )
    ),
    # These only look like the variables of a Service: Kubernetes writes capitals, no two underscores, and URLs as ports.
    ("ENRICHER_HEALTH_PORT=9000", "ENRICHER_HEALTH_PORT"),
    ("ENRICHER_HEALTH__PORT_443_TCP=tcp://10.0.0.11:443", "ENRICHER_HEALTH__PORT_443_TCP"),
    ("ENRICHER_HEALTH__SERVICE_HOST=10.0.0.11", "ENRICHER_HEALTH__SERVICE_HOST"),
    ("ENRICHER_HEALTH_SERVICE_HOSTS=10.0.0.11", "ENRICHER_HEALTH_SERVICE_HOSTS"),
    ("enricher_service_host=10.0.0.11", "enricher_service_host"),
]
"""Wrong types, values out of range, and settings that contradict each other: then the message has both sides."""
WRONG_FILES = [
    ("toml", f'[kafkaa]\ngroup_id = "{SECRET}"\n', "enricher.toml: kafkaa: no such setting; did you mean kafka?"),
    (
        *("toml", f'[kafka]\ngrup_id = "{SECRET}"\n'),
        "enricher.toml: kafka.grup_id: no such setting; did you mean kafka.group_id?",
    ),
    ("toml", f'[kafka]\nrequest_timeout_s = "{SECRET}"\n', "enricher.toml: kafka.request_timeout_s: "),
    ("toml", "[kafka\n", "enricher.toml: Expected ']' at the end of a table declaration (at line 1"),
    ("toml", '[articles.fields]\nbody = "text"\n', "'text' is not a JSON Pointer"),
]
MISTAKES = [
    *WRONG_FILES,
    *(("environment", *each) for each in [*UNKNOWN, *WRONG_PROPERTIES, *WRONG_VARIABLES]),
]


@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: f"{case[0]} {case[1][:60]}")
def test_a_mistake_is_named_where_it_was_made(monkeypatch: pytest.MonkeyPatch, case: tuple[str, ...]) -> None:
    """By its variable, or the file and the place in it: its author looks for that name. No value is quoted."""
    source, text, *said = case
    set_up(monkeypatch, source, text)
    found = mistake()
    assert [] == [each for each in said if each.lower() not in found.lower()], found
    assert len(found.splitlines()) <= len(text.splitlines()), "it is named once"
    assert SECRET not in found


SERVICE = {
    "SERVICE_HOST": "10.0.0.11",
    "SERVICE_PORT": "8080",
    "SERVICE_PORT_HTTP_METRICS": "8080",
    "PORT": "tcp://10.0.0.11:8080",
    "PORT_443_TCP": "tcp://[fd00::1]:443",
    "PORT_443_TCP_PROTO": "tcp",
    "PORT_443_TCP_PORT": "443",
    "PORT_443_TCP_ADDR": "10.0.0.11",
    "PORT_53_UDP": "udp://10.0.0.11:53",
}
"""The variables that a pod has for a Service in its namespace, without the Service's name."""


@pytest.mark.parametrize("service", ["ENRICHER", "ENRICHER_HEALTH", "ENRICHER_V2_DEMO"])
def test_variables_of_services_are_ignored(monkeypatch: pytest.MonkeyPatch, service: str) -> None:
    """Kubernetes gives them to every pod beside a Service whose name begins like the worker's."""
    for name, value in SERVICE.items():
        monkeypatch.setenv(f"{service}_{name}", value)
    assert load_settings() == Settings()
    monkeypatch.setenv("ENRICHER_HEALTH__PORT", "9000")
    assert 9000 == load_settings().health.port


def test_a_file_that_is_not_utf8_is_named_and_not_quoted() -> None:
    """What stands around the wrong byte may be a password."""
    Path("enricher.toml").write_bytes(f"# {SECRET}".encode() + b"\xff\n")
    assert "enricher.toml: not UTF-8" == mistake()


def test_the_file_in_force_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """With its folder; the one that `ENRICHER_CONFIG` names is read instead of `enricher.toml`."""
    caplog.set_level(logging.INFO)
    load_settings()
    assert [] == caplog.messages
    write("enricher.toml", '[kafka]\ngroup_id = "unread"\ninput_topic = "unread"\n')
    here = Path.cwd()
    load_settings()
    assert [f"settings come from {here / 'enricher.toml'}"] == caplog.messages
    write("other.toml", '[kafka]\ngroup_id = "a"\n')
    monkeypatch.setenv("ENRICHER_CONFIG", "other.toml")
    assert ("a", "articles") == (load_settings().kafka.group_id, load_settings().kafka.input_topic)
    assert f"settings come from {here / 'other.toml'}" == caplog.messages[-1]
    write("other.toml", "[kafkaa]\n")
    caplog.clear()
    assert "kafkaa" in mistake(), "and the file is told before a mistake in it"
    assert f"settings come from {here / 'other.toml'}" == caplog.messages[0]


@pytest.mark.parametrize(
    ("setting", "longest_s"), [(None, 120), ("KAFKA__SESSION_TIMEOUT_S", 300), ("WORKER__STALL_TIMEOUT_S", 600)]
)
def test_the_poll_interval_is_no_shorter_than_what_ends_a_worker_before(
    monkeypatch: pytest.MonkeyPatch, setting: str | None, longest_s: int
) -> None:
    """The client refuses one below the session timeout; the watchdog must come first. Nothing contradicts the rest."""
    if setting:
        monkeypatch.setenv(f"ENRICHER_{setting}", "300")
    config = kafka_config(load_settings())
    assert longest_s == config.max_poll_interval_s
    assert config.transaction_timeout_s < config.session_timeout_s
    assert config.max_message_bytes > load_settings().articles.max_dead_letter_bytes


def test_variable_names_are_what_they_are_read_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each setting that has a simple default can be set by the name that the documentation tells."""
    for group_name, group in Settings.model_fields.items():
        for field_name, default in [*group.get_default(call_default_factory=True)]:  # tasks: none
            if isinstance(default, str | int | float):
                monkeypatch.setenv(variable_name(group_name, field_name), str(default))
    assert load_settings() == Settings()


# ---- what a user may say to librdkafka


def config_with(**properties: str | float | bool) -> KafkaConfig:
    """The default configuration with these librdkafka properties, `_` for `.`."""
    settings = Settings()
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return kafka_config(settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"properties": named})}))


FOR_EXACTLY_ONCE = [
    "acks", "auto.offset.reset", "batch.size", "bootstrap.servers", "check.crcs", "connections.max.idle.ms",
    "enable.auto.commit", "enable.auto.offset.store", "enable.idempotence", "group.id", "group.instance.id",
    "group.protocol", "isolation.level", "max.in.flight", "max.poll.interval.ms", "message.max.bytes",
    "metadata.broker.list", "metadata.max.age.ms", "partition.assignment.strategy", "request.required.acks",
    "session.timeout.ms", "statistics.interval.ms", "transaction.timeout.ms", "transactional.id",
]  # fmt: skip
"""Every property that the worker itself sets for the sake of exactly-once, or has a setting for."""
STARTS_CODE = [
    "default.topic.config", "error_cb", "interceptors", "logger", "oauth_cb", "plugin.library.paths", "resolve_cb",
    "sasl.kerberos.kinit.cmd", "ssl.engine.id", "ssl.engine.location", "ssl.providers", "topic.acks",
]  # fmt: skip
"""Every property that loads code or runs a command, and some for which the client wants objects."""


@pytest.mark.parametrize("prefix", ["", "consumer.", "producer."])
@pytest.mark.parametrize("name", [*FOR_EXACTLY_ONCE, *STARTS_CODE])
def test_properties_that_break_a_promise_or_start_code_are_refused(name: str, prefix: str) -> None:
    """For both clients and for each alone; a `.env` may be somebody else's. `topic.` is no way around. No value is shown."""
    with pytest.raises(SettingsError, match=name.removeprefix("topic.").replace(".", r"\.")) as caught:
        check_properties({prefix + name: SECRET})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.kerberos.keytab", "$(id)"),
        ("sasl.kerberos.principal", "-X X509_user_identity=PKCS11:module.so"),
        ("sasl.kerberos.principal", "me\nid"),
    ],
)
def test_what_stands_in_a_shell_command_cannot_end_it(name: str, value: str) -> None:
    """The client puts keytab and principal into the command line of kinit as they are."""
    with pytest.raises(SettingsError, match="shell command") as caught:
        check_properties({name: value})
    assert value not in str(caught.value)


def test_a_usual_keytab_and_principal_are_taken() -> None:
    """Kerberos works as before, where the client is built with it."""
    usual = {"sasl.kerberos.keytab": "/etc/krb5/worker-0.keytab", "sasl.kerberos.principal": "enricher/h-0.x@EX.COM"}
    assert usual.items() <= config_with(**usual).consumer().items()


@pytest.mark.skipif(not _LIBRARIES, reason="this client has no library of its own beside it")
def test_no_property_of_this_client_that_starts_code_is_forgotten() -> None:
    """Found by what the library itself says of its properties, so that a new one is noticed."""
    speaks_of_code = re.compile(r"dlopen|engine|provider|plugin|command|interceptor|dedicated API", re.IGNORECASE)
    harmless = {
        "builtin.features": "can only be asked for",
        "debug": "names of what is logged",
        "sasl.oauthbearer.assertion.algorithm": "a choice; the identity provider is asked over HTTP",
        "sasl.oauthbearer.grant.type": "a choice; the identity provider is asked over HTTP",
    }
    found = {name for name, about in _properties().items() if speaks_of_code.search(about)}
    assert {"plugin.library.paths", "ssl.providers", "sasl.kerberos.kinit.cmd"} <= found
    for name in sorted(found - harmless.keys()):
        with pytest.raises(SettingsError):
            check_properties({name: "x"})


def _properties() -> dict[str, str]:
    """The properties of librdkafka by name, with all that it says of each."""
    library, system = ctypes.CDLL(str(_LIBRARIES[0])), ctypes.CDLL(None)
    system.fopen.restype = ctypes.c_void_p
    page = Path("properties.md")
    file = ctypes.c_void_p(system.fopen(str(page).encode(), b"w"))
    library.rd_kafka_conf_properties_show(file)
    system.fclose(file)
    rows = [line.split("|", 1) for line in page.read_text("utf-8").splitlines() if " | " in line]
    return {name.strip(): about for name, about in rows if not name.startswith(("Property", "--"))}


def test_other_properties_reach_the_clients_they_are_for() -> None:
    """General ones both, prefixed ones theirs alone, and there they win."""
    config = config_with(security_protocol="SSL", consumer_fetch_min_bytes=7, linger_ms=3, producer_linger_ms=5)
    consumer, producer = config.consumer(), config.producer()
    assert ("SSL", "SSL") == (consumer["security.protocol"], producer["security.protocol"])
    assert (7, None) == (consumer["fetch.min.bytes"], producer.get("fetch.min.bytes"))
    assert (3, 5) == (consumer["linger.ms"], producer["linger.ms"])
    assert consumer["check.crcs"] is True


@pytest.mark.parametrize(
    ("properties", "pause_s"),
    [
        ({}, 0.2),
        ({"producer_retry_backoff_ms": "400"}, 0.32),
        ({"producer_retry_backoff_max_ms": 150, "retry_backoff_ms": 20_000}, 0.15),
        ({"retry_backoff_ms": 20_000}, 0.5),
        ({"consumer_retry_backoff_ms": 1}, 0.2),
    ],
)
def test_retry_pause_is_the_shortest_of_any_request(properties: dict[str, str | float | bool], pause_s: float) -> None:
    """The backoff less 20 %, capped by its maximum, and never above the 500 ms after which offsets are sent again."""
    assert pytest.approx(pause_s) == config_with(**properties).retry_pause_s


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("retry.backoff.ms", 124, "is 124, but must be from 125"),
        ("retry.backoff.max.ms", "0x100", "whole number from 100"),
        ("retry.backoff.ms", 250.5, "whole number from 125"),
        ("topic.metadata.refresh.interval.ms", -1, "whole number from 1"),
        ("reconnect.backoff.max.ms", 3_600_000, "must be from 0 to 10000"),
        ("socket.timeout.ms", 10, "must be from 1000"),
        ("partitioner", "random", "one key must stay on one partition"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "producer."])
def test_values_that_switch_a_defence_off_are_refused(name: str, value: str | float, said: str, prefix: str) -> None:
    """The message names the property, its value and the reason."""
    with pytest.raises(SettingsError, match=re.escape(said)) as caught:
        config_with(**{prefix + name: value})
    assert prefix + name in str(caught.value)


def test_delete_events_can_be_written_as_a_table_or_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their values keep their types."""
    assert load_settings().articles.deleted is None
    write("enricher.toml", '[articles.deleted]\nfield = "/op"\nvalues = ["d", 1, true]\nid = "/before/id"\n')
    deleted = load_settings().articles.deleted
    assert deleted is not None
    assert ("/op", "/before/id") == (deleted.field, deleted.id)
    assert [("d", str), (1, int), (True, bool)] == [(each, type(each)) for each in deleted.values]
    monkeypatch.setenv("ENRICHER_ARTICLES__DELETED", '{"field": "/deleted", "values": [true]}')
    found = load_settings().articles.deleted
    assert found is not None
    assert ("/deleted", (True,)) == (found.field, found.values)
