"""The files of a checkpoint -> its fast tokenizer, checked against the model."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import VOCABULARY_FILES
from enricher.worker.inference.tokenizer.other_files import refuse_other_files, refuse_read_files

if TYPE_CHECKING:
    from pathlib import Path

    from enricher.worker.inference.checkpoint.folder import Checkpoint

OWN_FILE = "tokenizer.json"
"""The complete tokenizer, as its library wrote it. The other files only configure a class of transformers."""
_BERT_OPTIONS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
"""Options in tokenizer_config.json, and the attributes of BERT's normalizer that they set."""
_WRITES_OWN_FILE = f"AutoTokenizer.from_pretrained(...).save_pretrained(...) writes a {OWN_FILE}."
CASED_SHARE = 0.01
"""About a third of a cased vocabulary has capitals; in other vocabularies only special tokens have."""


def load_tokenizer(checkpoint: Checkpoint) -> Any:  # noqa: ANN401  transformers' own classes are untyped
    """The checkpoint's fast tokenizer, from files that its digest counts.

    Raises ModelError if there is none, if it does not belong to the model, or if it would be made from other files.
    """
    if not any((checkpoint.folder / name).is_file() for name in VOCABULARY_FILES):
        # transformers would make a tokenizer with an empty vocabulary, and every word would be [UNK].
        raise ModelError(f"{checkpoint.folder}: no tokenizer. One of {', '.join(VOCABULARY_FILES)} is required.")
    own = (checkpoint.folder / OWN_FILE).is_file()
    refuse_other_files(checkpoint.folder, any_class=not own)
    # Our threads call encode_batch; the library's own threads would compete with them and with the model's.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Without it, transformers warns at every start that PyTorch is missing, which is intended.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    from transformers import AutoTokenizer, PreTrainedTokenizerFast  # noqa: PLC0415  half a second, and it reads the variables above

    # A model's own class would take only the vocabulary from that file, and the rest from its defaults: a cased BERT
    # without a tokenizer_config.json would get lower-case text.
    kind = PreTrainedTokenizerFast if own else AutoTokenizer
    try:
        tokenizer = kind.from_pretrained(checkpoint.folder, local_files_only=True, trust_remote_code=False)
        if own:
            _configure(tokenizer)
        tokenizer("a")  # without its token for unknown words it fails at the first text
    except Exception as error:
        where = "" if own else f" There is no {OWN_FILE}; on a machine that loads this tokenizer, {_WRITES_OWN_FILE}"
        raise ModelError(f"{checkpoint.folder}: its tokenizer cannot be loaded: {error}{where}") from error
    refuse_read_files(tokenizer, checkpoint.folder)
    if not own:
        _require_case(tokenizer, checkpoint.folder)
    return _check(tokenizer, checkpoint)


def _require_case(tokenizer: Any, folder: Path) -> None:  # noqa: ANN401  as above
    """Raise ModelError if a cased vocabulary would get lower-case text, which is the default of transformers for BERT."""
    path = folder / "tokenizer_config.json"
    said = json.loads(path.read_bytes()) if path.is_file() else {}
    if "do_lower_case" in said or not getattr(tokenizer.backend_tokenizer.normalizer, "lowercase", False):
        return
    tokens = tokenizer.get_vocab().keys() - set(tokenizer.all_special_tokens)
    if sum(token != token.lower() for token in tokens) > CASED_SHARE * len(tokens):
        raise ModelError(
            f"{folder}: the vocabulary has words in upper case, and no file says whether text keeps its case: write "
            f'"do_lower_case": false (or true) into tokenizer_config.json.'
        )


def _configure(tokenizer: Any) -> None:  # noqa: ANN401  as above
    """Apply tokenizer_config.json, which overrides tokenizer.json, as in transformers."""
    from tokenizers.normalizers import BertNormalizer  # noqa: PLC0415  it comes with transformers
    from tokenizers.pre_tokenizers import ByteLevel  # noqa: PLC0415  the same

    backend, said = tokenizer.backend_tokenizer, tokenizer.init_kwargs
    if isinstance(normalizer := backend.normalizer, BertNormalizer):
        for option, attribute in _BERT_OPTIONS.items():
            if option in said:
                setattr(normalizer, attribute, said[option])
    if isinstance(splitter := backend.pre_tokenizer, ByteLevel) and "add_prefix_space" in said:
        splitter.add_prefix_space = said["add_prefix_space"]


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
    """One per token, except special tokens beyond the last row, which a class may add and no window contains."""
    backend = tokenizer.backend_tokenizer
    added = backend.get_added_tokens_decoder().items()
    size = backend.get_vocab_size() - sum(token.special and number >= rows for number, token in added)
    needed: int = max([size, *(number + 1 for number in tokenizer("a")["input_ids"])])
    return needed


def pad_id_of(tokenizer: Any, checkpoint: Checkpoint) -> int:  # noqa: ANN401  as above
    """The id that pads short windows. It is masked out, so any id with an embedding will do if the usual one has none."""
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
