"""The settings: where they come from, which one wins, and that every mistake is named before anything is connected."""

from __future__ import annotations

import ctypes
import json
import logging
import re
import sys
from pathlib import Path

import confluent_kafka
import pytest
from pydantic import ValidationError

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


def test_every_setting_has_a_default() -> None:
    """A worker starts without any setting."""
    settings = load_settings()
    assert settings.kafka.input_topic == "articles"
    assert settings.model.source == "newswire-e5"


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


@pytest.mark.parametrize(
    ("topics", "said"),
    [
        ('["now", "now"]', "must differ"),
        ('["now", "entities"]', "must differ"),
        ('{"now": 0.8, "later": 0.2}', "valid tuple"),
    ],
)
def test_input_topics_that_cannot_be_read_are_refused(monkeypatch: pytest.MonkeyPatch, topics: str, said: str) -> None:
    """One that is named twice; a topic that the worker writes to; shares, as they once were; two ways to name them."""
    monkeypatch.setenv("ENRICHER_KAFKA__INPUT_TOPICS", topics)
    assert said in mistake()
    monkeypatch.setenv("ENRICHER_KAFKA__INPUT_TOPICS", '["now"]')
    monkeypatch.setenv("ENRICHER_KAFKA__INPUT_TOPIC", "articles")
    assert "both set" in mistake()


@pytest.mark.parametrize(
    ("sources", "winner"),
    [
        ({"toml"}, "toml"),
        ({"dotenv"}, "dotenv"),
        ({"environment"}, "environment"),
        ({"toml", "dotenv"}, "dotenv"),
        ({"toml", "environment"}, "environment"),
        ({"dotenv", "environment"}, "environment"),
        ({"toml", "dotenv", "environment"}, "environment"),
    ],
    ids=lambda value: "+".join(sorted(value)) if isinstance(value, set) else value,
)
def test_stronger_sources_win(monkeypatch: pytest.MonkeyPatch, sources: set[str], winner: str) -> None:
    """A TOML file, above it `.env`, above that the environment."""
    if "toml" in sources:
        write("enricher.toml", '[kafka]\ngroup_id = "toml"\n')
    if "dotenv" in sources:
        write(".env", "ENRICHER_KAFKA__GROUP_ID=dotenv\n")
    if "environment" in sources:
        monkeypatch.setenv("ENRICHER_KAFKA__GROUP_ID", "environment")
    assert winner == load_settings().kafka.group_id


def test_sources_mix_field_by_field(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stronger source hides the fields that it names, not their whole group."""
    write("enricher.toml", '[kafka]\ngroup_id = "toml"\ninput_topic = "toml"\noutput_topic = "toml-out"\n')
    write(".env", "ENRICHER_KAFKA__INPUT_TOPIC=dotenv\n")
    monkeypatch.setenv("ENRICHER_KAFKA__OUTPUT_TOPIC", "environment")
    kafka = load_settings().kafka
    assert ("toml", "dotenv", "environment") == (kafka.group_id, kafka.input_topic, kafka.output_topic)


def test_another_toml_file_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ENRICHER_CONFIG` names it, and then `enricher.toml` is not read."""
    write("enricher.toml", '[kafka]\ngroup_id = "unread"\n')
    write("other.toml", '[kafka]\ninput_topic = "other"\n')
    monkeypatch.setenv("ENRICHER_CONFIG", "other.toml")
    kafka = load_settings().kafka
    assert ("other", "enricher") == (kafka.input_topic, kafka.group_id)


def test_a_named_file_that_is_not_there_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silently running with defaults would be worse."""
    monkeypatch.setenv("ENRICHER_CONFIG", "missing.toml")
    assert "ENRICHER_CONFIG" in mistake()
    assert "missing.toml" in mistake()


@pytest.mark.parametrize("separator", ["", " ", "\n", " | ", "\r\n"])
def test_a_separator_that_entities_would_cross_is_refused(monkeypatch: pytest.MonkeyPatch, separator: str) -> None:
    """An entity would go on from one paragraph of an array to the next; the message says what to write."""
    monkeypatch.setenv("ENRICHER_ARTICLES__PARAGRAPH_SEPARATOR", separator)
    assert "it must contain an empty line or a tab" in mistake()


@pytest.mark.parametrize("separator", ["\n\n", "\t", "\r\n\r\n", " \n \n "])
def test_a_separator_with_a_border_is_taken(monkeypatch: pytest.MonkeyPatch, separator: str) -> None:
    """As it stands."""
    monkeypatch.setenv("ENRICHER_ARTICLES__PARAGRAPH_SEPARATOR", separator)
    assert separator == load_settings().articles.paragraph_separator


@pytest.mark.parametrize("name", ["ENRICHER_KAFKAA__GROUP_ID", "ENRICHER_GROUP_ID", "enricher_kafkaa__group_id"])
@pytest.mark.parametrize("source", ["environment", "dotenv"])
def test_an_unknown_group_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch, name: str, source: str) -> None:
    """A variable with our prefix that is none of ours is a slip of the pen."""
    if source == "environment":
        monkeypatch.setenv(name, SECRET)
    else:
        write(".env", f"{name}={SECRET}\n")
    assert name in mistake()
    assert SECRET not in mistake()


@pytest.mark.parametrize("source", ["environment", "dotenv", "toml"])
def test_an_unknown_field_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """The message has the variable, or the file and the name there."""
    if source == "environment":
        monkeypatch.setenv("ENRICHER_KAFKA__GRUP_ID", SECRET)
    elif source == "dotenv":
        write(".env", f"ENRICHER_KAFKA__GRUP_ID={SECRET}\n")
    else:
        write("enricher.toml", f'[kafka]\ngrup_id = "{SECRET}"\n')
    assert ("enricher.toml: kafka.grup_id" if source == "toml" else "ENRICHER_KAFKA__GRUP_ID") in mistake()
    assert SECRET not in mistake()


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("KAFKA__GRUP_ID", "KAFKA__GROUP_ID"),
        ("KAFKA_GROUP_ID", "KAFKA__GROUP_ID"),
        ("kafkaa__group_id", "KAFKA__GROUP_ID"),
    ],
)
def test_an_unknown_variable_is_told_which_one_was_meant(
    monkeypatch: pytest.MonkeyPatch, wrong: str, meant: str
) -> None:
    """A wrong letter, one underscore instead of two; the page names those that were removed."""
    monkeypatch.setenv(f"ENRICHER_{wrong}", "cpu")
    message = f"ENRICHER_{wrong}: no such setting; did you mean ENRICHER_{meant}? (see 'enricher settings', or"
    assert mistake().lower().startswith(message.lower())
    assert mistake().endswith(" deploy/upgrading.md)")


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


@pytest.mark.parametrize(
    "service", ["ENRICHER", "ENRICHER_HEALTH", "ENRICHER_TASKS", "ENRICHER_CONFIG", "ENRICHER_V2_DEMO"]
)
def test_variables_of_services_are_ignored(monkeypatch: pytest.MonkeyPatch, service: str) -> None:
    """Kubernetes gives them to every pod beside a Service whose name begins like the worker's."""
    for name, value in SERVICE.items():
        monkeypatch.setenv(f"{service}_{name}", value)
    assert load_settings() == Settings()
    monkeypatch.setenv("ENRICHER_HEALTH__PORT", "9000")
    assert 9000 == load_settings().health.port


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ENRICHER_HEALTH_PORT", "9000"),
        ("ENRICHER_PORT", "9000"),
        ("ENRICHER_HEALTH__PORT_443_TCP", "tcp://10.0.0.11:443"),
        ("ENRICHER_HEALTH__SERVICE_HOST", "10.0.0.11"),
        ("ENRICHER_HEALTH_SERVICE_HOSTS", "10.0.0.11"),
        ("enricher_service_host", "10.0.0.11"),
    ],
)
def test_a_variable_that_only_looks_like_a_services_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """It is a mistake for a setting: Kubernetes writes names in capitals and without two underscores, and URLs as ports."""
    monkeypatch.setenv(name, value)
    assert name.lower() in mistake().lower()


def test_a_variable_of_a_service_in_dotenv_is_refused() -> None:
    """Kubernetes writes no files."""
    write(".env", "ENRICHER_SERVICE_HOST=10.0.0.11\n")
    assert "ENRICHER_SERVICE_HOST" in mistake()


@pytest.mark.parametrize("name", ["ENRICHER_KAFKA__SASL_PASSWORD", "ENRICHER_FORMAT", "ENRICHER_CRASH"])
def test_nothing_is_guessed_of_a_name_that_is_like_none_or_like_several(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A wrong guess would be followed."""
    monkeypatch.setenv(name, "x")
    assert "did you mean" not in mistake()


def test_unknown_names_of_the_toml_file_are_told_which_were_meant() -> None:
    """A table, and a name in a table, as they are written there."""
    write("enricher.toml", "[kafkaa]\n")
    assert mistake().startswith("enricher.toml: kafkaa: no such setting; did you mean kafka?")
    write("enricher.toml", '[kafka]\ngrup_id = "g"\n')
    assert mistake().startswith("enricher.toml: kafka.grup_id: no such setting; did you mean kafka.group_id?")


@pytest.mark.parametrize(
    ("servers", "instead"),
    [
        (f"SASL_SSL://user:{SECRET}@a:9093", ', and {"security.protocol": "SASL_SSL"} in kafka.properties'),
        ("a:9092, plaintext://b:9092", ', and {"security.protocol": "PLAINTEXT"} in kafka.properties'),
        ("http://a:9092", ""),
    ],
)
def test_brokers_with_a_scheme_are_refused_with_what_to_write(
    monkeypatch: pytest.MonkeyPatch, servers: str, instead: str
) -> None:
    """The client would look for a host of that name until its time is over."""
    monkeypatch.setenv("ENRICHER_KAFKA__BOOTSTRAP_SERVERS", servers)
    expected = f"ENRICHER_KAFKA__BOOTSTRAP_SERVERS: write host:port without a scheme, such as broker:9092{instead}"
    assert expected == mistake()


@pytest.mark.parametrize("line", ['grup_id = "g"', "request_timeout_s = -1", 'request_timeout_s = "soon"'])
def test_a_mistake_in_the_toml_file_names_the_file_and_the_place(line: str) -> None:
    """Its author looks for that name, and not for a variable that was never set."""
    write("enricher.toml", f"[kafka]\n{line}\n")
    assert mistake().startswith(f"enricher.toml: kafka.{line.partition(' ')[0]}: ")


def test_an_unknown_table_of_the_toml_file_is_refused_by_its_name() -> None:
    """The file is checked like everything else."""
    write("enricher.toml", f'[kafkaa]\ngroup_id = "{SECRET}"\n')
    assert "kafkaa" in mistake()
    assert SECRET not in mistake()


def test_a_toml_file_that_is_none_is_a_mistake() -> None:
    """The message says where it stops making sense."""
    write("enricher.toml", "[kafka\n")
    assert "line 1" in mistake()


def test_a_toml_file_may_begin_with_a_byte_order_mark() -> None:
    """Some editors write one, and nobody sees it."""
    write("enricher.toml", '\ufeff[kafka]\ngroup_id = "a"\n')
    assert "a" == load_settings().kafka.group_id


@pytest.mark.parametrize("name", ["enricher.toml", ".env"])
def test_a_file_that_is_not_utf8_is_named_and_not_quoted(name: str) -> None:
    """What stands around the wrong byte may be a password."""
    Path(name).write_bytes(f"# {SECRET}".encode() + b"\xff\n")
    assert f"{name}: not UTF-8" == mistake()


@pytest.mark.skipif(sys.platform != "linux", reason="reads a file of /proc that cannot be read")
def test_a_file_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the system's reason, not with a traceback."""
    monkeypatch.setenv("ENRICHER_CONFIG", "/proc/self/mem")
    assert "/proc/self/mem: Input/output error" == mistake()


def test_a_file_that_cannot_even_be_looked_for_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that may not be searched says no more than a name that is too long."""
    monkeypatch.setenv("ENRICHER_CONFIG", "a" * 5_000)
    assert "aaaa: File name too long" in mistake()


def test_the_name_of_the_toml_file_counts_in_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a `.env` it would be overlooked; but that may be the very file that the environment was made from."""
    write(".env", "ENRICHER_CONFIG=other.toml\n")
    assert "ENRICHER_CONFIG has no effect in .env" in mistake()
    write("other.toml", '[kafka]\ngroup_id = "a"\n')
    monkeypatch.setenv("ENRICHER_CONFIG", "other.toml")
    assert "a" == load_settings().kafka.group_id


def test_the_files_in_force_are_told_on_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With their folder; a file with other programs' variables alone is none of them."""
    caplog.set_level(logging.INFO)
    write(".env", "OTHER=1\n")
    load_settings()
    assert [] == caplog.messages
    write(".env", "ENRICHER_KAFKA__GROUP_ID=a\n")
    write("enricher.toml", "")
    here = Path.cwd()
    load_settings()
    assert [f"settings come from {here / 'enricher.toml'} and {here / '.env'}"] == caplog.messages
    write("other.toml", "")
    monkeypatch.setenv("ENRICHER_CONFIG", "other.toml")
    load_settings()
    assert f"settings come from {here / 'other.toml'} and {here / '.env'}" == caplog.messages[-1]


def test_the_files_in_force_are_told_before_a_mistake_in_them(caplog: pytest.LogCaptureFixture) -> None:
    """Who is told of a wrong setting learns where it may stand."""
    caplog.set_level(logging.INFO)
    write(".env", "ENRICHER_KAFKA__GRUP_ID=a\n")
    assert "GRUP_ID" in mistake()
    assert f"settings come from {Path.cwd() / '.env'}" == caplog.messages[0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ENRICHER_KAFKA__SESSION_TIMEOUT_S", "soon"),
        ("ENRICHER_KAFKA__SESSION_TIMEOUT_S", "1"),
        ("ENRICHER_MODEL__DEVICE", "abacus"),
        ("ENRICHER_MODEL__CONCURRENCY", "0"),
        ("ENRICHER_KAFKA__GROUP_ID", ""),
        ("ENRICHER_BATCHING__BUCKET_EDGES", "[]"),
        ("ENRICHER_OUTPUT__CLOUDEVENTS_SOURCE", "no uri"),
        ("ENRICHER_KAFKA__PROPERTIES", f'{{"sasl.password": ["{SECRET}"]}}'),
        ("ENRICHER_KAFKA__PROPERTIES", f'"{SECRET}"'),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """Wrong type, out of range, not one of the choices: the message has the name, and never a secret."""
    monkeypatch.setenv(name, value)
    assert name in mistake()
    assert SECRET not in mistake()


def test_all_mistakes_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to start three times to find three of them."""
    names = ["ENRICHER_KAFKA__SESSION_TIMEOUT_S", "ENRICHER_MODEL__CONCURRENCY", "ENRICHER_WORKER__PUBLISH_INTERVAL_MS"]
    for name in names:
        monkeypatch.setenv(name, "many")
    assert names == [name for name in names if name in mistake()]


@pytest.mark.parametrize("value", ["null", f'["{SECRET}"]', f'{{"fil": "{SECRET}"}}'])
def test_a_wrong_value_among_the_properties_is_named_once(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """A property may have one of several types, and its value is none of them."""
    monkeypatch.setenv("ENRICHER_KAFKA__PROPERTIES", f'{{"client.rack": "a", "sasl.password": {value}}}')
    assert "ENRICHER_KAFKA__PROPERTIES: sasl.password: Input should be a valid string" == mistake()


@pytest.mark.parametrize("source", ["environment", "dotenv"])
@pytest.mark.parametrize("value", [f'{{"sasl.password": "{SECRET}"', SECRET])
def test_malformed_json_shows_no_secret(monkeypatch: pytest.MonkeyPatch, value: str, source: str) -> None:
    """The most likely slip with the most secret setting."""
    if source == "environment":
        monkeypatch.setenv("ENRICHER_KAFKA__PROPERTIES", value)
    else:
        write(".env", f"ENRICHER_KAFKA__PROPERTIES='{value}'\n")
    assert "ENRICHER_KAFKA__PROPERTIES" in mistake()
    assert SECRET not in mistake()


@pytest.mark.parametrize(
    ("variables", "names"),
    [
        ({"ENRICHER_KAFKA__TRANSACTION_TIMEOUT_S": "30"}, ["kafka.transaction_timeout_s", "kafka.session_timeout_s"]),
        ({"ENRICHER_DEAD_LETTERS__MAX_RATIO": "0.0005"}, ["dead_letters.max_ratio", "at least one article"]),
        ({"ENRICHER_WORKER__STALL_TIMEOUT_S": "5"}, ["worker.stall_timeout_s", "kafka.request_timeout_s"]),
        ({"ENRICHER_BATCHING__BUCKET_EDGES": "[32, 16]"}, ["batching.bucket_edges"]),
        ({"ENRICHER_BATCHING__BUCKET_EDGES": "[16, 16]"}, ["batching.bucket_edges"]),
        ({"ENRICHER_BATCHING__BUCKET_EDGES": "[0, 16]"}, ["batching.bucket_edges"]),
        ({"ENRICHER_KAFKA__INPUT_TOPIC": "entities"}, ["input", "output"]),
        ({"ENRICHER_KAFKA__DEAD_LETTER_TOPIC": "articles"}, ["input", "dead-letter"]),
    ],
)
def test_settings_that_contradict_each_other_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], names: list[str]
) -> None:
    """The message names both sides."""
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    message = mistake()
    assert names == [name for name in names if name in message]


def test_the_defaults_do_not_contradict_each_other() -> None:
    """Also with the properties that the Kafka clients derive from them."""
    config = kafka_config(load_settings())
    assert config.transaction_timeout_s < config.session_timeout_s
    assert config.max_message_bytes > load_settings().articles.max_dead_letter_bytes
    assert 120 == config.max_poll_interval_s


@pytest.mark.parametrize(
    ("setting", "longest_s"), [("KAFKA__SESSION_TIMEOUT_S", 300), ("WORKER__STALL_TIMEOUT_S", 600)]
)
def test_the_poll_interval_is_no_shorter_than_what_ends_a_worker_before(
    monkeypatch: pytest.MonkeyPatch, setting: str, longest_s: int
) -> None:
    """The client refuses one below the session timeout; the watchdog must come first."""
    monkeypatch.setenv(f"ENRICHER_{setting}", "300")
    assert longest_s == kafka_config(load_settings()).max_poll_interval_s


def test_settings_do_not_change_while_the_worker_runs() -> None:
    """They are frozen, group by group."""
    settings = load_settings()
    with pytest.raises(ValidationError):
        settings.kafka.group_id = "other"  # type: ignore[misc]


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


def protected() -> list[str]:
    """Every property that the worker itself sets for the sake of exactly-once, or has a setting for."""
    return [
        "acks",
        "auto.offset.reset",
        "batch.size",
        "bootstrap.servers",
        "check.crcs",
        "connections.max.idle.ms",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "isolation.level",
        "max.in.flight",
        "max.poll.interval.ms",
        "message.max.bytes",
        "metadata.broker.list",
        "metadata.max.age.ms",
        "partition.assignment.strategy",
        "request.required.acks",
        "session.timeout.ms",
        "statistics.interval.ms",
        "transaction.timeout.ms",
        "transactional.id",
    ]


@pytest.mark.parametrize("prefix", ["", "consumer.", "producer."])
@pytest.mark.parametrize("name", protected())
def test_properties_that_exactly_once_needs_are_refused(name: str, prefix: str) -> None:
    """By their name, for both clients and for each alone; the value is not shown."""
    with pytest.raises(SettingsError, match=name.replace(".", r"\.")) as caught:
        config_with(**{prefix + name: SECRET})
    assert SECRET not in str(caught.value)


def starts_code() -> list[str]:
    """Every property that loads code or runs a command, and some for which the client wants objects."""
    return [
        "default.topic.config",
        "error_cb",
        "interceptors",
        "logger",
        "oauth_cb",
        "plugin.library.paths",
        "resolve_cb",
        "sasl.kerberos.kinit.cmd",
        "ssl.engine.id",
        "ssl.engine.location",
        "ssl.providers",
        "topic.acks",
    ]


@pytest.mark.parametrize("prefix", ["", "consumer.", "producer."])
@pytest.mark.parametrize("name", starts_code())
def test_properties_that_start_code_are_refused(name: str, prefix: str) -> None:
    """A `.env` in the working folder may be somebody else's. `topic.` is no way around."""
    with pytest.raises(SettingsError, match=name.removeprefix("topic.").replace(".", r"\.")) as caught:
        check_properties({prefix + name: SECRET})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.kerberos.keytab", 'a"; touch /tmp/x; "'),
        ("sasl.kerberos.keytab", "$(id)"),
        ("sasl.kerberos.principal", "me; id"),
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


@pytest.mark.parametrize(
    ("properties", "pause_s"),
    [
        ({}, 0.2),
        ({"retry_backoff_ms": 400}, 0.32),
        ({"producer_retry_backoff_ms": "400"}, 0.32),
        ({"retry_backoff_max_ms": 150}, 0.15),
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
        ("retry.backoff.max.ms", "99", "is 99, but must be from 100"),
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


def test_values_within_the_bounds_are_taken() -> None:
    """Both ends of a bound, as number and as text."""
    producer = config_with(
        retry_backoff_ms="125", producer_retry_backoff_max_ms=300_000, partitioner="murmur2"
    ).producer()
    assert ("125", 300_000) == (producer["retry.backoff.ms"], producer["retry.backoff.max.ms"])
    assert config_with().consumer()["check.crcs"] is True


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("FIELDS", '{"ident": "/id"}', "an article has no field 'ident'; the fields are id, title, body"),
        ("FIELDS", '{"id": "uuid"}', "'uuid' is not a JSON Pointer: it must begin with a slash"),
        ("FIELDS", '{"body": ""}', "'' is not a JSON Pointer"),
        ("FIELDS", '{"body": "/a~b"}', "write ~0 for ~, and ~1 for a slash"),
        ("FIELDS", '{"body": "key"}', "only id may be the record's key or a header"),
        ("FIELDS", '{"id": "header:"}', "the name of the header is missing"),
        ("METADATA", '{"": "/section"}', "the name of /section is empty"),
        ("METADATA", json.dumps({"x" * 200: "/section"}), "a name has 200 characters, at most 128 are allowed"),
        ("METADATA", json.dumps({"\ud83d": "/section"}), "lone surrogate"),
        ("METADATA", '{"section": "desk"}', "'desk' is not a JSON Pointer"),
    ],
)
def test_a_mapping_that_cannot_work_is_refused(
    monkeypatch: pytest.MonkeyPatch, setting: str, value: str, words: str
) -> None:
    """At the start, by the setting's name; otherwise every article would be a dead letter."""
    monkeypatch.setenv(f"ENRICHER_ARTICLES__{setting}", value)
    assert mistake().startswith(f"ENRICHER_ARTICLES__{setting}: ")
    assert words in mistake()


def test_a_mapping_can_be_written_in_toml(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a table; a variable changes the fields that it names."""
    write(
        "enricher.toml",
        '[articles.fields]\nid = "/uuid"\nbody = "/text"\n[articles.metadata]\nsection = "/desk/name"\n',
    )
    articles = load_settings().articles
    assert ({"id": "/uuid", "body": "/text"}, {"section": "/desk/name"}) == (articles.fields, articles.metadata)
    monkeypatch.setenv("ENRICHER_ARTICLES__FIELDS", '{"id": "key"}')
    assert {"id": "key", "body": "/text"} == load_settings().articles.fields
    write("enricher.toml", '[articles.fields]\nbody = "text"\n')
    assert "'text' is not a JSON Pointer" in mistake()


def test_delete_events_can_be_written_as_a_table_or_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their values keep their types; what can mark nothing is refused by the setting's name."""
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
    for wrong, words in (
        ('{"field": "op", "values": ["d"]}', "'op' is not a JSON Pointer"),
        ('{"field": "/rows/*/op", "values": ["d"]}', "only body is made of all items of a list"),
        ('{"field": "/op", "values": []}', "values: one or more strings, whole numbers or booleans are expected"),
        ('{"field": "/op", "values": ["d", 1.5]}', "values: one or more strings"),
        ('{"values": ["d"]}', "field: Field required"),
        ('{"field": "/op", "values": ["d"], "ids": "/id"}', "ids: no such setting"),
    ):
        write("enricher.toml", "")
        monkeypatch.setenv("ENRICHER_ARTICLES__DELETED", wrong)
        assert mistake().startswith("ENRICHER_ARTICLES__DELETED: ")
        assert words in mistake()
