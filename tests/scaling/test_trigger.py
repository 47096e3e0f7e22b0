"""Which metadata a ScaledObject may have."""

from __future__ import annotations

import pytest

from enricher.operate.scaling.policy import Rules
from enricher.operate.scaling.trigger import NAMES, BadMetadata, Trigger

DEFAULT = Trigger("enricher", "articles", Rules(target_age_s=60.0, catch_up_s=180.0, max_workers=9))


def test_without_metadata_all_is_as_in_the_settings() -> None:
    """KEDA passes on its own names too, and another form of them for values from the environment."""
    assert DEFAULT.changed_by({"scalerAddress": "x:6000", "enableTLS": "true", "caCertFromEnv": "CA"}) == DEFAULT


def test_each_name_changes_one_thing() -> None:
    """For all five names."""
    values = dict(zip(NAMES, ["g", "t", "90", "240.5", "4"], strict=True))
    assert DEFAULT.changed_by(values) == Trigger("g", "t", Rules(90.0, 240.5, 4))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("targetAgeSeconds", "soon"), ("targetAgeSeconds", "0"), ("targetAgeSeconds", "-5"), ("targetAgeSeconds", "inf"),
        ("targetAgeSeconds", "nan"), ("catchUpSeconds", "0"), ("maxReplicas", "2.5"), ("maxReplicas", "0"),
    ],
)  # fmt: skip
def test_an_impossible_number_is_refused(name: str, text: str) -> None:
    """The message has name and value: the ScaledObject's author sees it in KEDA's events."""
    with pytest.raises(BadMetadata, match=f"{name} is '{text}'"):
        DEFAULT.changed_by({name: text})


def test_a_misspelt_name_is_refused() -> None:
    """A name that is silently ignored would be worse."""
    with pytest.raises(BadMetadata, match=r"targetAgeSecond; known are .*targetAgeSeconds"):
        DEFAULT.changed_by({"targetAgeSecond": "30"})


@pytest.mark.parametrize("name", ["groupId", "topic"])
@pytest.mark.parametrize("text", ["a\nb", "a\x1b[2J", "a\u202eb", "a" * 256])
def test_an_invalid_name_is_refused_and_not_repeated(name: str, text: str) -> None:
    """Otherwise it would appear in the log."""
    with pytest.raises(BadMetadata, match=f"{name} must have at most 255 characters") as caught:
        DEFAULT.changed_by({name: text})
    assert text not in str(caught.value)
