"""Gold sets as labelled tokens: the same entities as in our JSON lines, and what cannot be read is refused by its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from enricher.errors import FatalError
from enricher.workshop.gate.gold import read_gold

CONLL = """\
-DOCSTART- -X- -X- O

# sent_id = 1
Ana NNP B-NP B-PER
Ribeiro NNP I-NP I-PER
left VBD B-VP O
Lisbon NNP B-NP B-LOC
Porto NNP B-NP B-LOC
. . O O

Shares\tO
fell\tO
"""
NAMES = ["O", "B-PER", "I-PER", "B-LOC"]
NUMBERED = {"tokens": ["Ana", "Ribeiro", "left", "Lisbon", "Porto", "."], "ner_tags": [1, 2, 0, 3, 3, 0]}
NAMED = {**NUMBERED, "ner_tags": ["B-PER", "E-PER", "O", "S-LOC", "S-LOC", "O"]}
REST = {"tokens": ["Shares", "fell"], "ner_tags": [0, 0]}
REST_NAMED = {**REST, "ner_tags": ["O", "O"]}
INFO = {"features": {"ner_tags": {"feature": {"names": NAMES, "_type": "ClassLabel"}, "_type": "Sequence"}}}


def written(folder: Path, content: str | list[Any], *, info: object = None) -> Path:
    """A file with this content."""
    path = folder / "gold"
    text = content if isinstance(content, str) else "".join(json.dumps(line) + "\n" for line in content)
    path.write_bytes(text.encode())
    if info is not None:
        (folder / "dataset_info.json").write_text(json.dumps(info))
    return path


@pytest.mark.parametrize("content", [CONLL, [NUMBERED, REST], [NAMED, REST_NAMED]], ids=["CoNLL", "numbers", "BIOES"])
def test_every_format_gives_the_same_texts(tmp_path: Path, content: str | list[dict[str, Any]]) -> None:
    """Two names side by side stay two, and a sentence without entities counts too."""
    gold = read_gold(written(tmp_path, content, info=INFO), ["PER", "LOC"])
    assert ["Ana Ribeiro left Lisbon Porto .", "Shares fell"] == [text.text for text in gold.texts]
    found = [(text.text[each.start : each.end], each.label) for text in gold.texts for each in text.entities]
    assert [("Ana Ribeiro", "PER"), ("Lisbon", "LOC"), ("Porto", "LOC")] == found


def test_chinese_is_joined_without_spaces(tmp_path: Path) -> None:
    """A model would read other tokens in a text with spaces that nobody writes."""
    gold = read_gold(written(tmp_path, "自从\tO\n2004\tO\n年\tO\n台\tB-LOC\n北\tI-LOC\nA\tO\nB\tO\n"))
    assert "自从2004年台北A B" == gold.texts[0].text
    assert [(7, 9)] == [(each.start, each.end) for each in gold.texts[0].entities]


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("\ufeff-DOCSTART- O\n\nAna B-PER\n", [("Ana", ["Ana"])]),
        ('\ufeff{"text": "Ana left", "entities": [{"start": 0, "end": 3, "label": "PER"}]}\n', [("Ana left", ["Ana"])]),
        ("# O\n1 O\nin O\nLisbon B-LOC\n", [("# 1 in Lisbon", ["Lisbon"])]),
        ("# Ana left\n# id 7 a\nAna B-PER\n", [("Ana", ["Ana"])]),
        ("10\u00a0000 O\nAna B-PER\na\u2028b O\n", [("10\u00a0000 Ana a\u2028b", ["Ana"])]),
        ("New York\tB-LOC\n\tO\nis\tO\t\n", [("New York is", ["New York"])]),
        ("Ana B-PER\r\n \r\nPorto B-LOC\r\n", [("Ana", ["Ana"]), ("Porto", ["Porto"])]),
        (
            [{"tokens": [], "ner_tags": []}, {"tokens": ["I", " Ana "], "ner_tags": ["O", "B-PER"]}],
            [("I Ana", ["Ana"])],
        ),
    ],
)
def test_no_token_is_lost_split_or_moved(
    tmp_path: Path, content: str | list[Any], texts: list[tuple[str, list[str]]]
) -> None:
    """Marks of byte order, `#` as a token, spaces within tokens, other line ends and empty sentences occur in real sets."""
    found = read_gold(written(tmp_path, content)).texts
    assert texts == [(each.text, [each.text[one.start : one.end] for one in each.entities]) for each in found]


@pytest.mark.parametrize(
    ("content", "info", "problem"),
    [
        ("Ana\n", None, "line 1: one column"),
        ("Ana B-PER\n\nid,text\n", None, "line 3: one column"),
        ("Ana B\n", None, "but not of what kind"),
        ("Ana B-MISC\n", None, "no model has the label 'MISC'"),
        ("Ana O\n", None, "has no entities"),
        ([NUMBERED], None, "line 1: ner_tags are numbers.*dataset_info.json"),
        ([NUMBERED], {"features": {}}, "line 1: ner_tags are numbers"),
        ([NAMED, {**NUMBERED, "ner_tags": [9] * 6}], INFO, "line 2: .*no name for the tag 9"),
        ([NAMED, {**NUMBERED, "ner_tags": [True] * 6}], INFO, "line 2: .*no name for the tag True"),
        ([{"tokens": ["Ana"], "ner_tags": []}], None, "line 1: 1 tokens and 0 ner_tags"),
        ([{"tokens": "Ana", "ner_tags": ["O"]}], None, "line 1: `tokens` and `ner_tags` must be lists"),
        ([NAMED, ["ner_tags"]], None, "line 2: `tokens` and `ner_tags` must be lists"),
        ("1\tAna\tB-PER\tO\n2\tleft\tO\tO\n\n1\tPorto\tB-LOC\tO\n", None, "the first column only numbers the tokens"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, content: Any, info: object, problem: str) -> None:  # noqa: ANN401
    """Each message says where, and what was expected."""
    with pytest.raises(FatalError, match=problem):
        read_gold(written(tmp_path, content, info=info), ["PER", "LOC"])
