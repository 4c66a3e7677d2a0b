"""The bi-encoder: texts become vectors, exactly as sentence-transformers computes them.

Texts are tokenised here, once, so that the same tokens serve for measuring, for windows and for encoding;
the model's own modules (transformer, pooling, dense, normalise) do the rest.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from retrieval.batching import token_batches
from retrieval.chunking import PassageVectors, is_blank, windows
from retrieval.counts import many
from retrieval.errors import ConfigError, DataError
from retrieval.models import ResolvedModel, fingerprint, resolve
from retrieval.runtime import choose_device, choose_dtype, require_finite, run_batches, try_openvino
from retrieval.texts import TextModel

POOLINGS = ("mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
"""How the vectors of a text's tokens become one, as sentence-transformers calls it."""

CPU_BATCH_TOKENS = 1536
GPU_BATCH_TOKENS = 16384

_SLICE = 256  # documents tokenised at a time: tokenizers' own objects are large

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class EncoderSettings:
    """How texts are encoded; None leaves the choice to the model.

    Attributes:
        pooling: One of ``POOLINGS``.
        query_prompt: Put before each query.
        document_prompt: Put before each document.
        max_length: Tokens of one input, special tokens included; at most what the model takes.
        batch_tokens: Tokens of one batch, padding included.
        dim: Length of vectors, of a model that was trained for several (Matryoshka): the first numbers of each are
            kept, and brought to unit length under cosine.
        device: auto, cpu, cuda, cuda:N or mps.
        dtype: auto, float32, bfloat16, float16 or int8; auto is bfloat16 on CUDA devices and, with OpenVINO, on
            processors that have it, else float32. int8, with OpenVINO, is of documents: ranges of numbers are taken
            from some of the first ones; queries are encoded as under auto.
        calibration: With int8, names what was taken from documents: the same name, on one machine, encodes all the
            same. None: the documents do.
        runtime: auto, torch or openvino; auto is openvino on a CPU, where it is installed, for models of 16 MiB and
            more that agree with torch in it.
        on_long: What happens to a document beyond ``max_length``: window, truncate or error.
        overlap: Tokens that neighbouring windows share; None is an eighth of ``max_length``.
        trust_remote_code: Run Python code that comes with the model.
    """

    pooling: str | None = None
    query_prompt: str | None = None
    document_prompt: str | None = None
    max_length: int | None = None
    batch_tokens: int | None = None
    dim: int | None = None
    device: str = "auto"
    dtype: str = "auto"
    runtime: str = "auto"
    calibration: str | None = None
    on_long: Literal["window", "truncate", "error"] = "window"
    overlap: int | None = None
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        if self.pooling is not None and self.pooling not in POOLINGS:
            raise ConfigError(f"unknown pooling {self.pooling!r}; expected one of {', '.join(POOLINGS)}")
        if self.on_long not in ("window", "truncate", "error"):
            raise ConfigError(f"on_long is {self.on_long!r}; expected window, truncate or error")
        for name in ("max_length", "batch_tokens", "dim"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; expected at least 1{' token' * (name != 'dim')}")
        if self.overlap is not None and self.overlap < 0:
            raise ConfigError(f"overlap is {self.overlap}; expected 0 or more tokens")


@dataclass(kw_only=True)
class _Passages:
    """Passages while they are collected: token ids without special tokens, and where each comes from."""

    tokens: list[np.ndarray] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)

    def add(self, tokens: np.ndarray, parent: int, start: int, end: int) -> None:
        self.tokens.append(tokens)
        self.parent.append(parent)
        self.start.append(start)
        self.end.append(end)


class BiEncoder:
    """An encoder of queries and documents.

    On a CPU a text's vector does not depend, to the bit, on the texts that are encoded with it.

    Attributes:
        dim: Length of a vector.
        metric: cosine (vectors have unit length) or dot.
        identity: What an index remembers of the encoder; plain JSON values.
        settings: The settings in force, with the model's own choices filled in.
        notices: Counts since loading: ``texts_windowed``, ``texts_truncated``, ``titles_truncated``,
            ``queries_truncated``, ``texts_encoded``, ``texts_reused``; a long text is encoded as several.
    """

    def __init__(self, model: TextModel, *, settings: EncoderSettings, sha256: str, path: str | None) -> None:
        """Use ``BiEncoder.load``.

        Args:
            model: The loaded model.
            settings: Settings with device and dtype decided.
            sha256: The fingerprint of the model's files.
            path: The model's folder where it was given as one.

        Raises:
            ConfigError: A setting does not fit the model.
            ModelError: The model gives no finite vectors.
        """
        self.notices: Counter[str] = Counter()
        self._model = model
        self._quantised: TextModel | None = None
        self._lock = threading.Lock()  # of the quantised model
        self.settings = settings = _completed(settings, model)
        self._limit = (settings.max_length or 0) - model.spec.frame.size  # tokens of the text itself
        self._check_prompts()
        self.metric = model.spec.metric
        if settings.dim is not None and settings.dim > model.dim:
            raise ConfigError(f"dim {settings.dim} is more than model {model.name} gives: {model.dim}")
        self.dim = settings.dim or model.dim
        self.identity: dict[str, object] = {
            "name": model.name,
            "sha256": sha256,
            "dim": self.dim,
            "model_dim": model.dim,
            "metric": self.metric,
            "pooling": model.spec.pooling,
            "query_prompt": settings.query_prompt,
            "document_prompt": settings.document_prompt,
            "max_length": settings.max_length,
            "normalize": self.metric == "cosine",
            "runtime": settings.runtime,
            "dtype": settings.dtype,
            "calibration": settings.calibration,
            "path": path,
        }

    @classmethod
    def load(cls, model: str | Path | None = None, *, settings: EncoderSettings = EncoderSettings()) -> "BiEncoder":
        """Load an encoder from a folder or a hub name; None is the embedded default.

        Raises:
            ModelError: The model cannot be found, loaded or used.
            ConfigError: A setting does not fit the model or this machine.
            MissingDependencyError: The default is asked for and not installed.
        """
        resolved = resolve(model)
        sha256 = fingerprint(resolved.folder)
        settings = replace(settings, device=choose_device(settings.device))
        loaded, settings = _loaded(resolved, sha256, settings)
        if settings.pooling is None and not (resolved.folder / "modules.json").is_file():
            logger.warning(
                "model %s does not say how it pools; %s pooling is assumed (--pooling)",
                resolved.name,
                loaded.spec.pooling,
            )
        return cls(loaded, settings=settings, sha256=sha256, path=resolved.path)

    def encode_documents(
        self, titles: Sequence[str], texts: Sequence[str], *, progress: Callable[[float], None] | None = None
    ) -> PassageVectors:
        """Encode documents, each as ``document prompt + title + " " + text``, long ones as several passages.

        Args:
            titles: One title a document; blank ones are left out.
            texts: One text a document.
            progress: Called after each batch with the share of the work that is done, 0 to 1.

        Returns:
            Passages in document order; none for a document that is blank in title and text.

        Raises:
            DataError: A document is too long and ``on_long`` is error, or is no valid Unicode.
            ModelError: The model gave NaN or infinite numbers, or memory does not hold one text.
        """
        if len(titles) != len(texts):
            raise DataError(f"got {len(titles)} titles for {len(texts)} texts; expected one title for each text")
        passages = _Passages()
        for start in range(0, len(texts), _SLICE):
            self._tokenize_documents(passages, start, titles[start : start + _SLICE], texts[start : start + _SLICE])
        prompt = self.settings.document_prompt or ""
        vectors = self._embed(
            self._for_documents(passages.tokens),
            passages.tokens,
            prompt,
            lambda row: f"document {passages.parent[row] + 1} of the call",
            progress,
        )
        return PassageVectors(
            parent=np.array(passages.parent, dtype=np.int64),
            start=np.array(passages.start, dtype=np.int64),
            end=np.array(passages.end, dtype=np.int64),
            vectors=vectors,
        )

    def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Encode queries, each as ``query prompt + text``, cut at the model's limit.

        Args:
            texts: The queries; a blank one has a vector too, which means nothing.

        Returns:
            (n, dim) float32, one row a query.

        Raises:
            DataError: A query is no valid Unicode.
            ModelError: As in ``encode_documents``.
        """
        prompt = self.settings.query_prompt or ""
        tokens = []
        for start in range(0, len(texts), _SLICE):
            found = self._encode_batch([prompt + text for text in texts[start : start + _SLICE]])
            tokens += [np.array(one.ids, dtype=np.int32) for one in found]
        cut = sum(len(one) > self._limit for one in tokens)
        if cut:
            self.notices["queries_truncated"] += cut
            logger.warning("%d of %s cut at %d tokens", cut, many(len(texts), "query"), self.settings.max_length)
        return self._embed(
            self._model,
            [one[: self._limit] for one in tokens],
            prompt,
            lambda row: f"query {row + 1}, {texts[row][:40]!r}",
        )

    def _tokenize_documents(self, passages: _Passages, first: int, titles: Sequence[str], texts: Sequence[str]) -> None:
        """Add the passages of some documents; ``first`` is the row of the first one."""
        prompt = self.settings.document_prompt or ""
        heads, bodies, rows = [], [], []
        for row, (title, text) in enumerate(zip(titles, texts, strict=True)):
            no_title, no_text = is_blank(title), is_blank(text)
            if no_title and no_text:
                continue
            heads.append(prompt if no_title else prompt + title.strip() + " " * (not no_text))
            bodies.append("" if no_text else text)
            rows.append(row)
        found = self._encode_batch([head + body for head, body in zip(heads, bodies, strict=True)])
        for row, head, body, one in zip(rows, heads, bodies, found, strict=True):
            if len(one.ids) <= self._limit:
                passages.add(np.array(one.ids, dtype=np.int32), first + row, 0, len(texts[row]))
            else:
                self._add_long(passages, first + row, head, body, one)

    def _add_long(self, passages: _Passages, row: int, head: str, text: str, encoding: Any) -> None:
        """Add the passages of a document that does not fit.

        Args:
            passages: Where to add them.
            row: The document's row.
            head: Prompt and title as they stand before the text.
            text: The text.
            encoding: Tokens of ``head + text``.

        Raises:
            DataError: ``on_long`` is error.
        """
        ids = np.array(encoding.ids, dtype=np.int32)
        offsets = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
        if self.settings.on_long == "error":
            raise DataError(
                f"document {row + 1} of the call ({(head + text)[:40]!r}...) has "
                f"{len(ids) + self._model.spec.frame.size} tokens, "
                f"the limit is {self.settings.max_length}; use --on-long window or truncate, or shorten it"
            )
        if self.settings.on_long == "truncate":
            self.notices["texts_truncated"] += 1
            end = max(0, int(offsets[self._limit - 1][1]) - len(head))
            passages.add(ids[: self._limit], row, 0, end)
            return
        prompt_size = int(np.count_nonzero(offsets[:, 1] <= len(self.settings.document_prompt or "")))
        head_size = int(np.count_nonzero(offsets[:, 1] <= len(head)))
        body = offsets[head_size:] - len(head)
        room = self._limit - prompt_size
        title_size = min(head_size - prompt_size, max(self._limit // 4, room - len(body)))
        if title_size < head_size - prompt_size:
            self.notices["titles_truncated"] += 1
        prefix = ids[: prompt_size + title_size]
        limit = max(1, room - title_size)  # no room is left only where there is no text
        cuts = windows(text, np.maximum(body, 0), limit=limit, overlap=self.settings.overlap or 0)
        if len(cuts) > 1:
            self.notices["texts_windowed"] += 1
        for cut in cuts:
            part = ids[head_size + cut.start_token : head_size + cut.end_token]
            passages.add(np.concatenate([prefix, part]), row, cut.start_char, cut.end_char)
        if not cuts:
            passages.add(prefix, row, 0, len(text))

    def _encode_batch(self, texts: list[str]) -> list[Any]:
        """Tokenise texts without special tokens.

        Raises:
            DataError: A text holds half of a surrogate pair.
        """
        for text in texts:
            if not text.isascii():
                try:
                    text.encode()
                except UnicodeEncodeError as error:
                    raise DataError(
                        f"a text is no valid Unicode ({error.reason}, character {error.start}): {text[:40]!r}"
                    ) from None
        found: list[Any] = self._model.tokenize(texts)
        return found

    def _check_prompts(self) -> None:
        """Refuse prompts that leave no room for the text."""
        for prompt in (self.settings.query_prompt, self.settings.document_prompt):
            size = len(self._encode_batch([prompt or ""])[0].ids)
            if self._limit < 1 or size > self._limit // 2:
                raise ConfigError(
                    f"max_length {self.settings.max_length} is too small: {self._model.spec.frame.size} "
                    f"special tokens and {size} of the prompt {prompt!r} must leave room for the text"
                )

    def _for_documents(self, tokens: Sequence[np.ndarray]) -> TextModel:
        """The model that encodes documents; in int8, made with the first ones.

        Raises:
            MissingDependencyError: NNCF is not installed.
            ModelError: It cannot be quantised.
        """
        if self.settings.dtype != "int8" or not tokens:
            return self._model
        with self._lock:
            if self._quantised is None:
                self._quantised = self._model.quantised(tokens, self.settings.calibration)
            return self._quantised

    def _embed(
        self,
        model: TextModel,
        tokens: Sequence[np.ndarray],
        prompt: str,
        what: Callable[[int], str],
        progress: Callable[[float], None] | None = None,
    ) -> np.ndarray:
        """Vectors of token sequences, equal ones encoded once.

        Args:
            model: What encodes them.
            tokens: Token ids without special tokens, each (length,) int32.
            prompt: The prompt that all of them start with.
            what: Names a sequence, for messages.
            progress: Called after each batch with the share of the tokens that is done.

        Returns:
            (n, dim) float32.
        """
        if not tokens:
            return np.empty((0, self.dim), dtype=np.float32)
        rows: dict[bytes, int] = {}
        inverse = np.array([rows.setdefault(one.tobytes(), len(rows)) for one in tokens], dtype=np.int64)
        unique = [np.frombuffer(one, dtype=np.int32) for one in rows]
        self.notices["texts_encoded"] += len(unique)
        self.notices["texts_reused"] += len(tokens) - len(unique)
        lengths = model.padded(np.array([len(one) + self._model.spec.frame.size for one in unique], dtype=np.int64))
        on_cpu = self.settings.device == "cpu"
        batches = token_batches(lengths, self.settings.batch_tokens or 1, same_length=on_cpu)
        # as sentence-transformers measures it: what stands before the text when the prompt is tokenised alone
        skipped = len(self._model.spec.frame.before) + len(self._encode_batch([prompt])[0].ids) if prompt else 0
        workers = model.workers if len(batches) > 1 else 1

        def forward(some: np.ndarray) -> np.ndarray:
            return model.forward([unique[row] for row in some], prompt_length=skipped, alone=workers == 1)

        vectors = run_batches(batches, lengths, forward, model=self._model.name, progress=progress, workers=workers)
        vectors = vectors[:, : self.dim]
        if self.metric == "cosine":
            with np.errstate(invalid="ignore"):
                vectors = vectors / np.sqrt((vectors * vectors).sum(axis=1, keepdims=True))
        require_finite(vectors, model=self._model.name, what=lambda row: what(int(np.flatnonzero(inverse == row)[0])))
        return vectors[inverse]


def _loaded(resolved: ResolvedModel, sha256: str, settings: EncoderSettings) -> tuple[TextModel, EncoderSettings]:
    """Load a model for the runtime that fits; the settings say which, and its number format.

    Raises:
        ModelError: It cannot be loaded, or not by the runtime that is asked for.
        ConfigError: Settings that contradict each other.
    """

    def graph() -> tuple[TextModel, EncoderSettings]:
        from retrieval.sentence_graph import load_sentence_graph

        found, dtype = load_sentence_graph(resolved, sha256=sha256, pooling=settings.pooling, dtype=settings.dtype)
        return found, replace(settings, runtime="openvino", dtype="int8" if settings.dtype == "int8" else dtype)

    by_openvino = try_openvino(
        graph,
        runtime=settings.runtime,
        device=settings.device,
        dtype=settings.dtype,
        folder=resolved.folder,
        trust_remote_code=settings.trust_remote_code,
    )
    if by_openvino is not None:
        return by_openvino
    from retrieval.sentence_model import load_sentence_model

    settings = replace(settings, runtime="torch", dtype=choose_dtype(settings.dtype, settings.device))
    loaded = load_sentence_model(
        resolved,
        device=settings.device,
        dtype=settings.dtype,
        pooling=settings.pooling,
        trust_remote_code=settings.trust_remote_code,
    )
    return loaded, settings


def _completed(settings: EncoderSettings, model: TextModel) -> EncoderSettings:
    """The settings with every None replaced by what holds for the model.

    Raises:
        ConfigError: The length or the overlap does not fit the model.
    """
    length = settings.max_length or model.spec.limit
    if length is None:
        raise ConfigError(f"model {model.name} states no maximum length; give max_length (--max-length)")
    if model.spec.limit is not None and length > model.spec.limit:
        raise ConfigError(f"max_length {length} is more than model {model.name} takes: {model.spec.limit} tokens")
    overlap = length // 8 if settings.overlap is None else settings.overlap
    if overlap > length // 2:
        raise ConfigError(f"overlap {overlap} is more than half of the maximum length, {length} tokens")
    own_query, own_document = model.spec.query_prompt, model.spec.document_prompt
    return replace(
        settings,
        query_prompt=own_query if settings.query_prompt is None else settings.query_prompt,
        document_prompt=own_document if settings.document_prompt is None else settings.document_prompt,
        max_length=length,
        batch_tokens=settings.batch_tokens or (CPU_BATCH_TOKENS if model.device == "cpu" else GPU_BATCH_TOKENS),
        overlap=overlap,
    )
