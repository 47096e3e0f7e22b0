"""Vectors of an article: sentence embeddings, as sentence-transformers saves them.

A checkpoint is an encoder, its pooling, and perhaps a normalisation. A checkpoint with other modules, which would change
the vector, is refused. Vectors are serialised once, as text, right after the model has made them.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, overload

import numpy as np
import orjson

from enricher.errors import InvalidArticle, ModelError
from enricher.worker.heads.head import Findings, Head, HeadFiles, HeadSpec, Layers, Reads, Threshold, article_row
from enricher.worker.heads.languages import Languages
from enricher.worker.records import Embedding, Float32Array, OwnedRow, TaskCard, TaskKind, Ticket, hot_record

MODULES_FILE, POOLING_FILE = "modules.json", "1_Pooling/config.json"
"""The files by which a folder of sentence-transformers is known: the list of its modules, and the pooling."""
_TRANSFORMER_FILE = "sentence_bert_config.json"
_PROMPTS_FILE = "config_sentence_transformers.json"
_MODES: Mapping[str, Reads] = {"cls": "first", "mean": "mean"}
"""The pooling modes that we build, as newer releases name them."""
_FLAG_PREFIX = "pooling_mode_"
_FLAGS = {"cls_token": "cls", "mean_tokens": "mean"}
"""The flags of older releases for these modes, after the prefix."""
_READ_AS: Mapping[Reads, str] = {"mean": "mean of all tokens", "first": "first token (CLS)"}
_FLOAT16 = np.dtype("<f2")
_BYTES_AS_TEXT = 3
"""A number of a vector takes 4 bytes, and about three times as many as text, in which finished records keep it."""
_NUMBER_BYTES = {"list": 4, "float16": 2}


@dataclass(frozen=True, slots=True)
class EmbeddingHead(Head):
    """Makes vectors. `normalised`: they have length 1."""

    normalised: bool = False

    kind: ClassVar[TaskKind] = "embedding"
    listed_in: ClassVar[str] = "embeddings"
    layers: ClassVar[Layers] = "none"
    settings: ClassVar[Mapping[str, str]] = {"pooling": "embedding", "vector": "embedding"}
    every_record: ClassVar[bool] = True

    @classmethod
    def recognises(cls, files: HeadFiles) -> bool:
        """Whether the folder was saved by sentence-transformers, and has no classification head after all."""
        return "Classification" not in files.architecture and (files.has(MODULES_FILE) or files.has(POOLING_FILE))

    @classmethod
    def read_spec(cls, files: HeadFiles) -> tuple[HeadSpec, tuple[str, ...]]:
        """The pooling. Raises ModelError if vectors would differ from sentence-transformers'."""
        width = files.config.get("hidden_size", files.config.get("dim"))
        pooling_file, normalised = _modules(files)
        pooling = files.read_object(pooling_file)
        reads = _reads(files.folder / pooling_file, pooling)
        dimensions = pooling.get("word_embedding_dimension", pooling.get("embedding_dimension", width))
        if dimensions != width:
            raise ModelError(
                f"{files.folder / pooling_file}: it pools vectors of {dimensions} numbers, and config.json says {width}. "
                f"Copy the folder again, completely."
            )
        _require_plain_text(files)
        names = (MODULES_FILE, pooling_file, _TRANSFORMER_FILE, _PROMPTS_FILE)
        spec = HeadSpec(cls.kind, (), multi_label=False, reads=reads, normalised=normalised, dimensions=dimensions)
        return spec, tuple(name for name in names if files.has(name))

    @classmethod
    def facts(cls, spec: HeadSpec) -> Mapping[str, Any]:
        """Pooling, size and length of the vectors."""
        return {"pooling": _READ_AS[spec.reads], "dimensions": spec.dimensions, "normalised": spec.normalised}

    @classmethod
    def for_task(
        cls, spec: HeadSpec, task: TaskCard, languages: Languages | None, threshold: Threshold, *, several: bool
    ) -> EmbeddingHead:
        """The head of a task."""
        del threshold, several
        return cls(task, spec.normalised, languages=languages)

    def find(self, ticket: Ticket, answers: list[OwnedRow]) -> list[Embedding]:
        """The vector of an article; none if it has no tokens."""
        del ticket
        row = article_row(answers, self.task)
        if row is None:
            return []
        if self.normalised and (length := float(np.linalg.norm(exact := row.astype(np.float64)))):
            row = (exact / length).astype(np.float32)
        return [Embedding(self.task, row)]

    @classmethod
    def held_bytes(cls, findings: Findings) -> int:
        """Memory of the vectors as text."""
        return _BYTES_AS_TEXT * sum([int(each.vector.nbytes) for each in findings])

    @classmethod
    def compact(cls, findings: Findings) -> Findings:
        """The vectors as text. A vector that cannot be written stays as it is, so that `as_json` says why."""
        if findings:
            with suppress(InvalidArticle):
                return write_embeddings(findings)
        return findings

    @classmethod
    def as_json(cls, findings: Findings) -> orjson.Fragment:
        """The text of the vectors."""
        return orjson.Fragment(write_embeddings(findings).json)

    @classmethod
    def as_values(cls, findings: Findings) -> list[Any]:
        """Lists of numbers, or the bytes of float16."""
        values: list[dict[str, Any]] = orjson.loads(write_embeddings(findings).json)
        for value in values:
            if "vector_float16" in value:
                value["vector_float16"] = b64decode(value["vector_float16"])
        return values

    @classmethod
    def value_as_json(cls, value: Mapping[str, Any]) -> Mapping[str, Any]:
        """A vector with the digits of float32, or in base64."""
        values = dict(value)
        if isinstance(halves := values.get("vector_float16"), bytes):
            values["vector_float16"] = b64encode(halves).decode()
        vector = values.pop("vector", None)
        # Protobuf cannot tell an empty list from none.
        return values if "vector_float16" in values else values | {"vector": np.array(vector or [], np.float32)}

    @classmethod
    def large_share(cls, findings: Findings, *, as_text: bool) -> str | None:
        """The bytes of the vectors, which are often most of a record."""
        if not findings:
            return None
        if as_text:
            size_bytes = write_embeddings(findings).vector_bytes
        else:
            size_bytes = sum(len(each.vector) * _NUMBER_BYTES[each.task.vector_format] for each in findings)
        smaller = any(each.task.vector_format == "list" for each in findings)
        return f"{size_bytes} of them are vectors{': vector=float16 makes them smaller' if smaller else ''}"

    @classmethod
    def text_of(cls, listed: Sequence[Mapping[str, Any]]) -> str:
        """The size of the vector."""
        return ", ".join(f"vector of {each['dimensions']} dimensions" for each in listed) or "no vector"


@hot_record(eq=False)
class WrittenEmbeddings(Sequence[Embedding]):
    """Vectors as the JSON of their record, which is parsed again when they are accessed.

    A vector may be a view of the output of a whole batch, which text does not keep in memory.
    """

    json: bytes
    cards: tuple[TaskCard, ...]
    vector_bytes: int
    """Size of the vectors in `json`, without the fields around them."""

    def __len__(self) -> int:
        return len(self.cards)

    def __iter__(self) -> Iterator[Embedding]:
        for card, written in zip(self.cards, orjson.loads(self.json), strict=True):
            yield Embedding(card, _parse_vector(written))

    @overload
    def __getitem__(self, index: int) -> Embedding: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Embedding]: ...
    def __getitem__(self, index: int | slice) -> Embedding | Sequence[Embedding]:
        return list(self)[index]


def write_embeddings(embeddings: Sequence[Embedding]) -> WrittenEmbeddings:
    """Serialise vectors: float32 with the fewest digits that give the same float32 again, or float16 in base64.

    Raises InvalidArticle, of stage `publish`, for a value that is not finite, also after rounding to float16.
    """
    if isinstance(embeddings, WrittenEmbeddings):
        return embeddings
    parts, vector_bytes = [], 0
    for embedding in embeddings:
        name, text = _vector_field(embedding)
        vector_bytes += len(text)
        parts.append({
            "task": embedding.task.name,
            "dimensions": len(embedding.vector),
            "pooling": embedding.task.pooling,
            name: orjson.Fragment(text),
        })  # fmt: skip
    cards = tuple(embedding.task for embedding in embeddings)
    return WrittenEmbeddings(orjson.dumps(parts), cards, vector_bytes)


def _vector_field(embedding: Embedding) -> tuple[str, bytes]:
    """The name of the field, and its JSON."""
    vector = np.ascontiguousarray(embedding.vector, np.float32)
    if embedding.task.vector_format == "float16":
        with np.errstate(over="ignore"):  # becomes infinite, which is refused
            halves = vector.astype(_FLOAT16)
        _refuse_infinite(embedding, vector)
        if not np.isfinite(halves).all():
            name = embedding.task.name
            raise InvalidArticle(f"the vector of task {name!r} is beyond float16: vector=list", stage="publish")
        return "vector_float16", b'"' + b64encode(halves.tobytes()) + b'"'
    _refuse_infinite(embedding, vector)
    return "vector", orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY)


def _refuse_infinite(embedding: Embedding, vector: Float32Array) -> None:
    if not np.isfinite(vector).all():
        raise InvalidArticle(f"the vector of task {embedding.task.name!r} is not finite", stage="publish")


def _parse_vector(written: dict[str, Any]) -> Float32Array:
    if "vector" in written:
        return np.array(written["vector"], np.float32)
    return np.frombuffer(b64decode(written["vector_float16"]), _FLOAT16).astype(np.float32)


def _modules(files: HeadFiles) -> tuple[str, bool]:
    """The file that configures the pooling, and whether vectors are normalised."""
    path = files.folder / MODULES_FILE
    if not files.has(MODULES_FILE):
        return POOLING_FILE, False
    try:
        entries = json.loads(files.read(MODULES_FILE))
        modules = [(str(each["type"]).rpartition(".")[2], str(each["path"])) for each in entries]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path}: it does not list modules: {error}. Copy the folder again, completely.") from error
    kinds = [kind for kind, _ in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise ModelError(
            f"{path}: its modules are {', '.join(kinds)}; supported are a Transformer, then Pooling, then perhaps Normalize"
            + (" (no Dense layer after pooling)" if "Dense" in kinds else "")
            + ". Choose a model with these modules: without the others, the vectors would differ."
        )
    (_, encoder), (_, pooling) = modules[:2]
    if encoder not in {"", "."}:
        raise ModelError(
            f"{path}: the encoder is in {encoder}, not beside modules.json. Copy the files of {encoder} there, and write "
            f'"path": "" for it.'
        )
    file = f"{pooling}/config.json"
    if ".." in file or file.startswith("/") or not files.has(file):
        raise ModelError(f"{path}: there is no {file} for its pooling. Copy the folder again, completely.")
    return file, kinds[-1] == "Normalize"


def _reads(path: Path, pooling: Mapping[str, Any]) -> Reads:
    """The hidden states that the pooling reads. Raises ModelError unless its only mode is one of `_MODES`."""
    named = pooling.get("pooling_mode")
    found = [named] if isinstance(named, str) else list(named or ())
    for key, value in pooling.items():
        flag = key.removeprefix(_FLAG_PREFIX)
        if value is True and flag != key:
            found.append(_FLAGS.get(flag, flag))
    modes = list(dict.fromkeys(map(str, found)))
    if len(modes) == 1 and modes[0] in _MODES:
        return _MODES[modes[0]]
    raise ModelError(
        f"{path}: its pooling is {' and '.join(modes) or 'not named'}; supported is either the mean of all tokens "
        f"(pooling_mode_mean_tokens) or the first token (pooling_mode_cls_token). Choose a model with one of them."
    )


def _require_plain_text(files: HeadFiles) -> None:
    """Raise ModelError if sentence-transformers would change the text before its tokenizer sees it."""
    transformer, prompts = (
        files.read_object(name) if files.has(name) else {} for name in (_TRANSFORMER_FILE, _PROMPTS_FILE)
    )
    if transformer.get("do_lower_case") is True:
        raise ModelError(
            f'{files.folder / _TRANSFORMER_FILE}: "do_lower_case" lowers the text before the tokenizer, which is not '
            f"supported. Choose a model whose tokenizer does that, and set it to false."
        )
    name = prompts.get("default_prompt_name")
    texts = prompts.get("prompts")
    if isinstance(texts, dict) and texts.get(name):
        raise ModelError(
            f"{files.folder / _PROMPTS_FILE}: its default prompt {name!r} would be put before every text, which is "
            f'not supported. Set "default_prompt_name" to null for vectors of the articles alone.'
        )
