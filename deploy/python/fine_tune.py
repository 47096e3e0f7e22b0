"""Fine-tune a token classification model of transformers on labelled lines, as `enricher model evaluate` reads them.

python deploy/python/fine_tune.py BASE TRAIN.jsonl OUT EPOCHS

It needs torch and transformers. BASE is a folder or a name of the hub. Its head is kept if it has all labels of the lines.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found]  # in its own environment: models.md says how
from transformers import AutoConfig, AutoModelForTokenClassification, AutoTokenizer, DataCollatorForTokenClassification

WINDOW_TOKENS, OVERLAP_TOKENS = 256, 32
BATCH_WINDOWS, LEARNING_RATE = 16, 5e-5
NEW_HEAD_FASTER = 20
"""A new head learns so many times as fast: it begins at random."""


def fine_tune(base: str, train: str, out: str, epochs: int) -> None:
    """Write the model and its tokenizer into `out`."""
    torch.manual_seed(0)
    texts = [json.loads(line) for line in Path(train).read_text("utf-8").splitlines()]
    kinds = sorted({entity["label"] for text in texts for entity in text["entities"]})
    ids = {"O": 0} | {
        f"{place}-{kind}": 2 * at + far for at, kind in enumerate(kinds) for far, place in ((1, "B"), (2, "I"))
    }
    known = AutoConfig.from_pretrained(base).label2id
    is_new = not ids.keys() <= known.keys()
    ids = ids if is_new else known
    tokenizer = AutoTokenizer.from_pretrained(base)
    labels: dict[str, Any] = {"label2id": ids, "id2label": {number: name for name, number in ids.items()}}
    model = AutoModelForTokenClassification.from_pretrained(
        base, dtype=torch.float32, ignore_mismatched_sizes=True, **labels
    ).to("cuda" if torch.cuda.is_available() else "cpu")
    windows = [window for text in texts for window in windows_of(tokenizer, text, ids)]
    batches = torch.utils.data.DataLoader(
        windows, BATCH_WINDOWS, shuffle=True, collate_fn=DataCollatorForTokenClassification(tokenizer)
    )
    if is_new:  # also if it has as many labels as before
        torch.nn.init.normal_(model.classifier.weight, std=0.02)
        torch.nn.init.zeros_(model.classifier.bias)
    head = {"params": model.classifier.parameters(), "lr": LEARNING_RATE * (NEW_HEAD_FASTER if is_new else 1)}
    encoder = [value for name, value in model.named_parameters() if not name.startswith("classifier.")]
    optimizer = torch.optim.AdamW([head, {"params": encoder}], LEARNING_RATE)
    slower = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, epochs * len(batches))
    model.train()
    for epoch in range(epochs):
        for batch in batches:
            loss = model(**batch.to(model.device)).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            slower.step()
        print(f"epoch {epoch + 1}: the last batch's loss is {loss.item():.4f}")
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def windows_of(tokenizer: Any, text: dict[str, Any], ids: dict[str, int]) -> list[dict[str, Any]]:  # noqa: ANN401  untyped
    """The windows of a text, with a label for each token; special tokens count for nothing."""
    cut = tokenizer(
        text["text"], truncation=True, max_length=WINDOW_TOKENS, stride=OVERLAP_TOKENS,
        return_overflowing_tokens=True, return_offsets_mapping=True,
    )  # fmt: skip
    return [
        {"input_ids": tokens, "labels": [label_of(text, start, end, ids) for start, end in offsets]}
        for tokens, offsets in zip(cut["input_ids"], cut["offset_mapping"], strict=True)
    ]


def label_of(text: dict[str, Any], start: int, end: int, ids: dict[str, int]) -> int:
    """The label of a token's first character that is no space."""
    start = end - len(text["text"][start:end].lstrip())
    if start == end:
        return -100
    for entity in text["entities"]:
        if entity["start"] <= start < entity["end"]:
            return ids[f"{'B' if start == entity['start'] else 'I'}-{entity['label']}"]
    return ids["O"]


if __name__ == "__main__":
    fine_tune(base=sys.argv[1], train=sys.argv[2], out=sys.argv[3], epochs=int(sys.argv[4]))
