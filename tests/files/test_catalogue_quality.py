"""Ids of the entities of real articles, against ids given by hand: whatever has an id has the right one.

The rules were made while looking at this set (tests/data/catalogue), so it shows that they still hold, and is no estimate
for other articles. Only context words tell an entry from a namesake that is in no catalogue.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import orjson

from enricher.worker.files.catalogue_index import CatalogueFiles, CatalogueIndex
from enricher.worker.records import Article, Entity
from enricher.worker.rules.catalogue import add_ids

ROOT = Path(__file__).parent.parent.parent
DATA = ROOT / "tests" / "data" / "catalogue"


def test_no_id_is_wrong_and_most_entities_of_the_catalogue_have_one() -> None:
    """Precision 1.0; recall as it is today, at least. Many of the names have several candidates."""
    index = CatalogueIndex(CatalogueFiles(DATA / "names.jsonl"), max_generation=0)
    articles = {
        each["id"]: Article(each["id"], each["title"], each["body"])
        for each in map(orjson.loads, (ROOT / "enricher/models/articles/wikinews.jsonl").read_bytes().splitlines())
    }
    mentions = defaultdict(list)
    for line in (DATA / "mentions.jsonl").read_bytes().splitlines():
        mention = orjson.loads(line)
        mentions[mention["article"]].append(mention)
    counts: Counter[str] = Counter()
    wrong = []
    for name, found in mentions.items():
        entities = [
            Entity(
                field=each["field"],
                start=each["start"],
                end=each["end"],
                text=each["text"],
                label=each["label"],
                score=1.0,
            )
            for each in found
        ]
        add_ids(articles[name], entities, [index.find(each["text"], each["label"], None) for each in entities])
        for mention, entity in zip(found, entities, strict=True):
            truth, given = mention["id"], entity.get("id")
            if truth == "?":
                continue
            counts["ambiguous"] += len(entity.get("ids", ())) > 1
            counts["in the catalogue"] += truth is not None
            counts["right"] += given is not None and given == truth
            if given not in (None, truth):
                wrong.append(f"{name}: {mention['text']} is {truth}, not {given} ({entity['why']})")
    assert [] == wrong
    assert counts["ambiguous"] >= 60
    assert counts["right"] >= 0.87 * counts["in the catalogue"] > 600
