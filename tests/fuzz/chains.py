"""Small tokenizers of eight kinds, and a checkpoint for each, whose labels depend on the piece only."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from pipeline.family_tokenizers import ODD, samples
from safetensors.numpy import load_file, save_file
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

REFERENCE = Path(__file__).parents[1] / "data" / "reference" / "bert"
PIECES = 500
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How o200k splits a text, as its tokenizer.json has it."""


def _train(tokenizer: Tokenizer, trainer: Any) -> Tokenizer:  # noqa: ANN401  the library's trainers have no base
    texts = [sentence for text in samples()[:6] for sentence in text.split("\n")]
    tokenizer.train_from_iterator([*texts, *ODD], trainer)
    return tokenizer


def _word_piece(*, lowercase: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return _train(
        tokenizer, trainers.WordPieceTrainer(vocab_size=PIECES, special_tokens=["[UNK]"], show_progress=False)
    )


def _unigram(normalizer: normalizers.Normalizer, splitter: pre_tokenizers.PreTokenizer) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    names: Any = {"special_tokens": ["<unk>"], "unk_token": "<unk>"}
    return _train(tokenizer, trainers.UnigramTrainer(vocab_size=PIECES, show_progress=False, **names))


def _xlm_r() -> Tokenizer:
    cleaned = [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    splitters = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    return _unigram(normalizers.Sequence(cleaned), pre_tokenizers.Sequence(splitters))


def _deberta() -> Tokenizer:
    cleaned = [normalizers.Strip(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    return _unigram(normalizers.Sequence(cleaned), pre_tokenizers.Metaspace())


def _gemma() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(
        vocab_size=PIECES, special_tokens=["<unk>"], limit_alphabet=80, max_token_length=12, show_progress=False
    )
    content = json.loads(_train(tokenizer, trainer).to_str())
    first = len(content["model"]["vocab"])
    content["model"]["vocab"] |= {f"<0x{byte:02X}>": first + byte for byte in range(256)}
    content["model"] |= {"byte_fallback": True, "fuse_unk": True}
    return Tokenizer.from_str(json.dumps(content))


def _byte_level(*splitters: pre_tokenizers.PreTokenizer) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splitters])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    _train(tokenizer, trainers.BpeTrainer(vocab_size=PIECES, initial_alphabet=alphabet, show_progress=False))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    return tokenizer


def _robbert() -> Tokenizer:
    return _byte_level(
        pre_tokenizers.Whitespace(), pre_tokenizers.ByteLevel(add_prefix_space=True), pre_tokenizers.Punctuation()
    )


def _o200k() -> Tokenizer:
    split = pre_tokenizers.Split(Regex(O200K), "isolated")
    return _byte_level(split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))


CHAINS: dict[str, Callable[[], Tokenizer]] = {
    "WordPiece, cased": lambda: _word_piece(lowercase=False),
    "WordPiece, uncased": lambda: _word_piece(lowercase=True),
    "Unigram of XLM-R": _xlm_r,
    "Unigram of DeBERTa-v3": _deberta,
    "BPE of Gemma": _gemma,
    "bytes of RoBERTa": lambda: _byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "bytes of RobBERT": _robbert,
    "bytes of o200k": _o200k,
}


@cache
def trained(chain: str) -> Tokenizer:
    """The chain's tokenizer, as its file has it."""
    return CHAINS[chain]()


@cache
def untrimmed(chain: str) -> Tokenizer:
    """The same, with all characters in the offsets."""
    tokenizer = Tokenizer.from_str(trained(chain).to_str())
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def write_checkpoint(chain: str, folder: Path) -> Path:
    """A checkpoint of one layer with the chain's tokenizer. Its layer adds nothing, so labels depend on the piece only."""
    folder.mkdir()
    trained(chain).save(str(folder / "tokenizer.json"))
    size = trained(chain).get_vocab_size()
    config = json.loads((REFERENCE / "config.json").read_bytes())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": size, "num_hidden_layers": 1}))
    weights = load_file(REFERENCE / "model.safetensors")
    dice = np.random.default_rng(1)
    for name, value in [*weights.items()]:
        if ".layer." in name and ".layer.0." not in name:
            del weights[name]
        elif "word_embeddings" in name:
            weights[name] = dice.normal(size=(size, value.shape[1])).astype(value.dtype)
        elif "position_embeddings" in name or "token_type" in name or ".output.dense." in name:
            weights[name] = np.zeros_like(value)
        elif name == "classifier.weight":
            weights[name] = dice.normal(size=value.shape).astype(value.dtype)
    save_file(weights, folder / "model.safetensors")
    return folder
