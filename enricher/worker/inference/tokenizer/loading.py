"""A checkpoint's files -> its fast tokenizer, checked against the model.

A folder is refused if its tokenizer would read files that the checkpoint's digest does not cover. Values of its JSON files
become arguments of classes of transformers, and some of these are paths, which are opened wherever they lead
(`PreTrainedTokenizerBase._from_pretrained`).

A tokenizer that loses characters of a text is refused too: it would lose words, and nothing would show it. RobBERT's
pre-tokenizer puts a space before every word, and its post-processor removes that space from the token's range of characters,
where it is not: `Amsterdam` begins at its `m`, and a word of one letter is nowhere.
"""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.configuration import read_object
from enricher.worker.inference.checkpoint.folder import TOKENIZER_FILES, VOCABULARY_FILES, Checkpoint
from enricher.worker.rules.words import chunk_around

OWN_FILE = "tokenizer.json"
"""The file with the complete tokenizer, as the library `tokenizers` writes it. Other files only configure transformers."""
_BERT_OPTIONS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
"""Options in tokenizer_config.json, and the attributes of BERT's normalizer that these options set."""
_WRITES_OWN_FILE = f"AutoTokenizer.from_pretrained(...).save_pretrained(...) writes a {OWN_FILE}."
_SPM_FILE = "spm.model"
"""The only file that many of DeBERTa's folders have."""
_CONVERTS_SPM = f"""{_SPM_FILE} is not read; these two lines make a {OWN_FILE} of it (later releases lose its normalizer):
  pip install 'transformers==4.57.1' sentencepiece protobuf tiktoken
  python -c "from transformers import AutoTokenizer as A; A.from_pretrained('{{folder}}').save_pretrained('{{folder}}')\""""
CASED_SHARE = 0.01
"""A vocabulary is cased if a larger share of it has capitals: a third of a cased one, else only special tokens."""
_CONFIGURATION, _SPECIAL_TOKENS = "tokenizer_config.json", "special_tokens_map.json"
_PLACES = frozenset({"gguf_file", "init_inputs", "merges", "merges_file", "tokenizer_object", "vocab", "vocab_file"})
"""Keys that name files, or contain values that should come from a file."""
_VERSIONS = "fast_tokenizer_files"
"""The key that names several tokenizer.json, one for each version of transformers."""
_IDLE = frozenset({
    "_name_or_path", "added_tokens_file", "full_tokenizer_file", "name_or_path", "special_tokens_map_file", "tokenizer_file",
})  # fmt: skip
"""Keys that say where the tokenizer came from. transformers takes the folder's own files instead."""
_TEXTS = frozenset({"added_tokens_decoder", "auto_map", "chat_template", "extra_special_tokens", "response_schema"})
"""Keys with texts in which a slash means nothing. The code that `auto_map` names is never run."""


def load_tokenizer(checkpoint: Checkpoint) -> Any:  # noqa: ANN401  transformers' own classes are untyped
    """The checkpoint's fast tokenizer.

    Raises ModelError if there is none, if it does not belong to the model, or if the digest does not cover all of its files.
    """
    if not any((checkpoint.folder / name).is_file() for name in VOCABULARY_FILES):
        # transformers would make a tokenizer with an empty vocabulary, and every word would be [UNK].
        alone = (
            f" {_CONVERTS_SPM.format(folder=checkpoint.folder)}" if (checkpoint.folder / _SPM_FILE).is_file() else ""
        )
        raise ModelError(f"{checkpoint.folder}: no tokenizer. One of {', '.join(VOCABULARY_FILES)} is required.{alone}")
    own = (checkpoint.folder / OWN_FILE).is_file()
    _refuse_named_files(checkpoint.folder, any_class=not own)
    # Our threads call encode_batch; the library's own threads would compete with them and with the model's.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Without it, transformers warns at every start that PyTorch is missing, which is intended.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    import transformers  # noqa: PLC0415  half a second, and it reads the variables above

    # A model's own class would take only the vocabulary from tokenizer.json, and the rest from its defaults: a cased BERT
    # without a tokenizer_config.json would get lower-case text.
    # transformers imports a class when it is named, and AutoTokenizer takes another half second.
    kind = transformers.PreTrainedTokenizerFast if own else transformers.AutoTokenizer
    try:
        tokenizer = kind.from_pretrained(checkpoint.folder, local_files_only=True, trust_remote_code=False)
        if own:
            _configure(tokenizer)
        tokenizer("a")  # fails if its token for unknown words is missing
    except Exception as error:
        where = "" if own else f" There is no {OWN_FILE}; on a machine that loads this tokenizer, {_WRITES_OWN_FILE}"
        raise ModelError(f"{checkpoint.folder}: its tokenizer cannot be loaded: {error}{where}") from error
    _refuse_other_files(tokenizer, checkpoint.folder)
    if not own:
        _require_case(tokenizer, checkpoint.folder)
    return _check(tokenizer, checkpoint)


def _refuse_named_files(folder: Path, *, any_class: bool) -> None:
    """Raise ModelError if one of the tokenizer's JSON files names a file, or may name one.

    `any_class`: tokenizer_config.json chooses the class, any of whose arguments may be a path.
    """
    for key, value in _values(folder / _CONFIGURATION).items():
        if key == _VERSIONS and set(_texts(value)) <= {"tokenizer.json"}:
            continue
        named = key in _PLACES or key == _VERSIONS or key.endswith(("_file", "_files"))
        is_text = key in _TEXTS or key.endswith(("_token", "_tokens"))
        unknown = any_class and not is_text and any("/" in text or "\\" in text for text in _texts(value))
        if value and key not in _IDLE and (named or unknown):
            raise _refusal(folder / _CONFIGURATION, key)
    for key, value in _values(folder / _SPECIAL_TOKENS).items():
        # Unlike the keys of the configuration, these override the folder's own files.
        if value and not key.endswith(("_token", "_tokens")):
            raise _refusal(folder / _SPECIAL_TOKENS, key)


def _refuse_other_files(tokenizer: Any, folder: Path) -> None:  # noqa: ANN401  as above
    """Raise ModelError if a loaded tokenizer was made from a file that the digest does not cover."""
    for key, value in tokenizer.init_kwargs.items():
        if not isinstance(value, str) or not key.endswith("_file") or not Path(value).is_file():
            continue
        if Path(value).parent != folder or Path(value).name not in TOKENIZER_FILES:
            raise ModelError(
                f"{folder}: the tokenizer is made from {Path(value).name}, and only {', '.join(TOKENIZER_FILES)} are read. "
                f"AutoTokenizer.from_pretrained(...).save_pretrained(...) writes a tokenizer.json."
            )


def _values(path: Path) -> Mapping[str, Any]:
    return read_object(path) if path.is_file() else {}


def _texts(value: object) -> list[str]:
    """The texts of a JSON value, at any depth, keys included."""
    found, left = list[str](), [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            found.append(each)
        elif isinstance(each, dict):
            left += [*each, *each.values()]
        elif isinstance(each, list):
            left += each
    return found


def _refusal(path: Path, key: str) -> ModelError:
    return ModelError(
        f"{path}: {key!r} names a file, or may do so, which the tokenizer would read and the model's digest does not cover: "
        f"remove the key. Everything that a tokenizer needs is in {', '.join(TOKENIZER_FILES)}."
    )


def _require_case(tokenizer: Any, folder: Path) -> None:  # noqa: ANN401  as above
    """Raise ModelError if a cased vocabulary would get lower-case text, which is the default of transformers for BERT."""
    path = folder / "tokenizer_config.json"
    options = json.loads(path.read_bytes()) if path.is_file() else {}
    if "do_lower_case" in options or not getattr(tokenizer.backend_tokenizer.normalizer, "lowercase", False):
        return
    tokens = tokenizer.get_vocab().keys() - set(tokenizer.all_special_tokens)
    if sum(token != token.lower() for token in tokens) > CASED_SHARE * len(tokens):
        raise ModelError(
            f"{folder}: the vocabulary has words in upper case, and no file says whether text keeps its case: write "
            f'"do_lower_case": false (or true) into tokenizer_config.json.'
        )


def _configure(tokenizer: Any) -> None:  # noqa: ANN401  as above
    """Apply tokenizer_config.json, which overrides tokenizer.json in transformers too."""
    from tokenizers.normalizers import BertNormalizer  # noqa: PLC0415  it comes with transformers
    from tokenizers.pre_tokenizers import ByteLevel  # noqa: PLC0415  the same

    backend, options = tokenizer.backend_tokenizer, tokenizer.init_kwargs
    if isinstance(normalizer := backend.normalizer, BertNormalizer):
        for option, attribute in _BERT_OPTIONS.items():
            if option in options:
                setattr(normalizer, attribute, options[option])
    if isinstance(splitter := backend.pre_tokenizer, ByteLevel) and "add_prefix_space" in options:
        splitter.add_prefix_space = options["add_prefix_space"]


def _check(tokenizer: Any, checkpoint: Checkpoint) -> Any:  # noqa: ANN401  as above
    if not tokenizer.is_fast:
        raise ModelError(
            f"{checkpoint.folder}: {type(tokenizer).__name__} is not a fast tokenizer, and only those return spans. "
            f"On a machine that loads it, {_WRITES_OWN_FILE}"
        )
    rows: int | None = checkpoint.config.vocab_size  # None: an ONNX model's config.json may lack it
    if rows is not None and (needed := _embeddings_needed(tokenizer, rows)) > rows:
        raise ModelError(
            f"{checkpoint.folder}: the tokenizer has {needed} tokens and the model {rows} embeddings: "
            f"they do not belong together."
        )
    return tokenizer


def _embeddings_needed(tokenizer: Any, rows: int) -> int:  # noqa: ANN401  as above
    """The rows that are needed: one for each token, except for special tokens beyond the last row.

    A class may add such tokens, and no window has them.
    """
    backend = tokenizer.backend_tokenizer
    added = backend.get_added_tokens_decoder().items()
    size = backend.get_vocab_size() - sum(token.special and number >= rows for number, token in added)
    needed: int = max([size, *(number + 1 for number in tokenizer("a")["input_ids"])])
    return needed


def pad_id_of(tokenizer: Any, checkpoint: Checkpoint) -> int:  # noqa: ANN401  as above
    """The id that pads short windows. It is masked, so 0 will do if neither the tokenizer's nor config.json's is usable."""
    known = (tokenizer.pad_token_id, checkpoint.config.pad_token_id)
    rows: int | None = checkpoint.config.vocab_size
    return next((each for each in known if each is not None and (rows is None or 0 <= each < rows)), 0)


def specials_of(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:  # noqa: ANN401  as above
    """The ids that the tokenizer puts before and after a text."""
    encoded = tokenizer("a", return_special_tokens_mask=True)
    ids, special = encoded["input_ids"], encoded["special_tokens_mask"]
    plain = [index for index, is_special in enumerate(special) if not is_special]
    if not plain:
        raise ModelError("the tokenizer returns no token for the letter a; it cannot belong to this model")
    return tuple(ids[: plain[0]]), tuple(ids[plain[-1] + 1 :])


SPACES = ("\u2581", "\u0120")
"""The signs by which SentencePiece and byte-level BPE write a space."""
_TEXT = (
    "Amsterdam (A. van Dijk) said: \"I saw O'Brien\" \u2013 'U.S.' & AT&T, 3.5 % of $1,234\r\nE y o a 7\u00a0km! \u2116 1 "
    "\u201eZoe\u0308\u201c \u00abS\u00e3o Paulo\u00bb na\u00efve q\u0307 \u0130stanbul \u00df \ufb01 \u00bd \u2026\n\n"
    "\u0410\u043d\u043d\u0430 \u0432 \u041c\u043e\u0441\u043a\u0432\u0435 \u0391\u03b8\u03ae\u03bd\u03b1 \u05ea\u05dc "
    "\u0627\u0644\u0631\u064a\u0627\u0636 \u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22 \ud55c\uad6d\t"
    "\u6771\u4eac \u5728 \u5317\u4eac\u3002\u30c8\u30e8\u30bf \U0001f642 \U0001f469\u200d\U0001f680 x\u200by @anna #Rom https://a.b/c?d=1"
)
"""A text with all kinds of characters: scripts, digits, quotes, marks, line breaks, emoji; words of one letter, and
capitals."""
_SEEN = frozenset("LNPS")
"""Categories of letters, numbers, punctuation and symbols. Tokenizers may drop or join marks and format characters."""


def require_characters(backend: Tokenizer, folder: Path) -> None:
    """Raise ModelError if the tokenizer loses characters, and taking another post-processor does not help.

    If it helps, the tokenizer is changed: its post-processor must not be needed for special tokens.
    """
    try:
        text, lost = _TEXT, _lost_chars(backend, _TEXT)
        if lost:
            _keep_spaces(backend)
            lost = _lost_chars(backend, text)
        if lost:
            text = _known_text(backend)
            lost = _lost_chars(backend, text)
    except Exception as error:
        raise ModelError(
            f"{folder}: its tokenizer fails at ordinary text: {error}. The model in tokenizer.json must have a token for "
            f"unknown words."
        ) from error
    if lost:
        start, end = chunk_around(text, lost[0])
        raise ModelError(
            f"{folder}: its tokenizer loses characters, so names would be missed: no token has {text[lost[0]]!r} of "
            f"{text[start:end]!r}, and {len(lost)} of {len(text)} characters of a test are lost so. The normalizer or the "
            f"pre_tokenizer in tokenizer.json drops what the vocabulary knows: take the file that the model was trained "
            f"with, as AutoTokenizer.from_pretrained(...).save_pretrained(...) writes it."
        )


def _keep_spaces(backend: Tokenizer) -> None:
    """Leave a token the space before it, which does no harm: spaces are in no word."""
    from tokenizers.processors import ByteLevel  # noqa: PLC0415  slow, and loaded already

    backend.post_processor = ByteLevel(trim_offsets=False)


def _known_text(backend: Tokenizer) -> str:
    """The text without characters that make no token alone: they are dropped on purpose, or the vocabulary lacks them.

    A BPE model without a token for unknown characters may give wrong places to a word's characters beside one that it
    lacks.
    """
    unknown = [char for char in set(_TEXT) if not char.isspace() and not _ranges(backend, char)]
    return _TEXT.translate(dict.fromkeys(map(ord, unknown)))


def _lost_chars(backend: Tokenizer, text: str) -> list[int]:
    """The places of the characters that no token has."""
    found = {char for start, end in _ranges(backend, text) for char in range(start, end)}
    return [at for at, char in enumerate(text) if unicodedata.category(char)[0] in _SEEN and at not in found]


def _ranges(backend: Tokenizer, text: str) -> list[tuple[int, int]]:
    """The characters of each token that is not only a space: such a token may claim the first one of a word."""
    encoding = backend.encode(text, add_special_tokens=False)
    return [chars for token, chars in zip(encoding.tokens, encoding.offsets, strict=True) if token not in SPACES]
