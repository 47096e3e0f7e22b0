"""Small tokenizers as the families have them, trained on some of the sample articles; and texts, ordinary and odd.

ModernBERT has GPT-NeoX's, mmBERT has Gemma's, and DeBERTa has SentencePiece's Unigram as transformers converts it.
"""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ARTICLES = Path(__file__).parents[2] / "enricher" / "models" / "articles" / "wikinews.jsonl"
GOLD = Path(__file__).parents[2] / "enricher" / "models" / "gold" / "pud.jsonl"
PIECES, TRAINED_ON = 800, 10
_BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_FAIRSEQ = ["<s>", "<pad>", "</s>", "<unk>"]
SPECIALS = {
    "bert": _BERT,
    "distilbert": _BERT,
    "electra": _BERT,
    "roberta": [*_FAIRSEQ, "<mask>"],
    "xlm-roberta": [*_FAIRSEQ, "<mask>"],
    "modernbert": ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"],
    "deberta-v2": ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"],
    "mmbert": ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"],
    "camembert": ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>", "<mask>"],
}
ODD = (
    *dict.fromkeys(name for names in SPECIALS.values() for name in names),
    *("\ufdfa", "\ufdfb", "\ufdf2", "محمد\ufdfa", "\u33bf", "㍿", "㌀", "½", "ﬁn", "℡", "…", "a\u00a8b", "\u00b4", "\u2017"),
    *("Zoe\u0308", "q\u0307\u0323", "\u0301", "İstanbul", "ẞ", "\U0001d4d0da", "Ａｄａ", "👩\u200d👩\u200d👧", "🇫🇷"),
    *("東京都", "中文", "الرياض", "ไทย", "हिन्दी", "한국", "\u200b", "\u00ad", "\ufeff", "\x00"),
    *("\u00a0", "\u3000", "\u2028", "\r\n", "\t", "  "),
    *("O'Brien-Smith", "e-mail@x.org", "...", "“U.S.”", "##ing", "▁", "Ġ", "x" * 120, "&amp;"),
)  # fmt: skip


@cache
def samples() -> list[str]:
    """The bodies of the sample articles."""
    return [json.loads(line)["body"] for line in ARTICLES.read_text("utf-8").splitlines()]


@cache
def _words() -> list[str]:
    sentences = [json.loads(line)["text"] for line in GOLD.read_text("utf-8").splitlines()]
    return " ".join([*sentences, *samples()]).split(" ")


def texts(count: int, seed: int) -> list[tuple[str, str]]:
    """Titles and bodies: runs of words of news, with something odd between or inside of every tenth or so."""
    dice = random.Random(seed)

    def text(words: int) -> str:
        at = dice.randrange(len(_words()) - words)
        parts = _words()[at : at + words]
        for _ in range(dice.choice([0, 1, 1, 2, words // 8])):
            parts.insert(dice.randrange(len(parts) + 1), dice.choice(ODD))
        return "".join(part + dice.choice(["", *[" "] * 12]) for part in parts)

    return [(text(dice.choice([0, 0, 3, 8])), text(dice.randint(1, 60))) for _ in range(count)]


@cache
def tokenizer_of(family: str, *, special: bool) -> Tokenizer:
    """A family's. `special`: as a checkpoint has it; else one that has never heard of special tokens, with the same ids."""
    content = json.loads(_trained(family))
    if special:
        return Tokenizer.from_str(json.dumps(content))
    content["added_tokens"] = []
    if isinstance(content["model"]["vocab"], list):
        hidden = {name: f"\ue000{number}\ue001" for number, name in enumerate(SPECIALS[family])}
        content["model"]["vocab"] = [[hidden.get(name, name), score] for name, score in content["model"]["vocab"]]
    return Tokenizer.from_str(json.dumps(content))


@cache
def _trained(family: str) -> str:
    tokenizer, trainer = _untrained(family)
    tokenizer.train_from_iterator(samples()[:TRAINED_ON], trainer)
    names = SPECIALS[family]
    if isinstance(tokenizer.model, models.Unigram):
        tokenizer = _in_front(tokenizer, names[:-1])
    if family == "mmbert":
        tokenizer = _as_gemma(tokenizer)
    tokenizer.add_special_tokens([*names[:-1], AddedToken(names[-1], lstrip=True, special=True)])
    first, last = around(family)
    numbers: Any = [(name, tokenizer.token_to_id(name)) for name in (last, first)]
    if family == "roberta":
        tokenizer.post_processor = processors.RobertaProcessing(numbers[0], numbers[1], add_prefix_space=True)
    else:
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{first} $A {last}", special_tokens=numbers)
    return str(tokenizer.to_str())


def around(family: str) -> tuple[str, str]:
    """The special tokens before and after a text."""
    if family == "mmbert":
        return "<bos>", "<eos>"
    return ("[CLS]", "[SEP]") if "[CLS]" in SPECIALS[family] else ("<s>", "</s>")


def _untrained(family: str) -> tuple[Tokenizer, Any]:
    if family in {"bert", "distilbert", "electra"}:
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=family != "distilbert")
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return tokenizer, trainers.WordPieceTrainer(
            vocab_size=PIECES, special_tokens=SPECIALS[family], show_progress=False
        )
    if family == "mmbert":
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
        )
        return tokenizer, trainers.BpeTrainer(
            vocab_size=PIECES,
            special_tokens=[*SPECIALS[family][:-1], *(f"<0x{byte:02X}>" for byte in range(256))],
            show_progress=False,
        )
    if family in {"roberta", "modernbert"}:
        tokenizer = Tokenizer(models.BPE())
        if family == "modernbert":
            tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=family == "roberta")
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        return tokenizer, trainers.BpeTrainer(
            vocab_size=PIECES, special_tokens=SPECIALS[family][:-1], initial_alphabet=alphabet, show_progress=False
        )
    tokenizer, unknown = Tokenizer(models.Unigram()), "<unk>"
    # As SentencePiece's own `nmt_nfkc`, which these three have, makes one character several words.
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    if family == "deberta-v2":
        unknown = "[UNK]"
        cleaned = [normalizers.Strip(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
        tokenizer.normalizer = normalizers.Sequence(cleaned)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace()])
    return tokenizer, trainers.UnigramTrainer(
        vocab_size=PIECES, special_tokens=[unknown], unk_token=unknown, show_progress=False
    )


def _as_gemma(tokenizer: Tokenizer) -> Tokenizer:
    """Bytes are pieces of the vocabulary, and no special tokens. A text is one word, whose spaces are signs.

    Pieces begin with a sign at most, because training splits at spaces, as SentencePiece does.
    """
    gemma = Tokenizer.from_str(json.dumps(json.loads(tokenizer.to_str()) | {"added_tokens": []}))
    gemma.normalizer = normalizers.Replace(" ", "\u2581")
    gemma.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    return gemma


def _in_front(tokenizer: Tokenizer, names: list[str]) -> Tokenizer:
    """The special tokens as pieces of the vocabulary, as the families' own converters put them there."""
    content = json.loads(tokenizer.to_str())
    unknown = content["model"]["vocab"][content["model"]["unk_id"]][0]
    pieces = [piece for piece in content["model"]["vocab"] if piece[0] != unknown]
    content["model"] |= {"vocab": [*([name, 0.0] for name in names), *pieces], "unk_id": names.index(unknown)}
    content["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(content))
