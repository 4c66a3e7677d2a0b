"""The cross-encoder: reads a query and a passage together and gives the pair one logit.

monoBERT (Nogueira and Cho 2019, "Passage Re-ranking with BERT") in any encoder family. A passage that does
not fit is read in overlapping windows and counts with its best one; a query is never pushed out by a passage.
"""

from __future__ import annotations

import inspect
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from retrieval.batching import token_batches
from retrieval.errors import ConfigError, DataError, ModelError
from retrieval.models import ResolvedModel, fingerprint, resolve
from retrieval.pairs import PairTokens, Piece
from retrieval.runtime import (
    choose_device,
    choose_dtype,
    load_torch,
    quiet_loading,
    require_finite,
    run_batches,
)

_BUDGETS = {"cpu": 4_096, "cuda": 65_536, "mps": 16_384}
_NEGATIVE = {"not", "non", "no", "irrelevant", "nonrelevant", "unrelated", "false", "negative"}
_ROWS = 16  # a matrix product of fewer rows, or of an odd number by one column, rounds differently


@dataclass(frozen=True, kw_only=True)
class RerankSettings:
    """How a cross-encoder runs.

    Attributes:
        max_length: Tokens of a pair, special tokens included; None takes the model's own limit.
        batch_tokens: Tokens of a batch, padding included; None chooses by device.
        device: `auto`, `cpu`, `cuda`, `cuda:N` or `mps`.
        dtype: `auto`, `float32`, `bfloat16` or `float16`, of the layers below the head; scores are float32.
        trust_remote_code: Whether code that comes with the model may run.
    """

    max_length: int | None = None
    batch_tokens: int | None = None
    device: str = "auto"
    dtype: str = "auto"
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        if self.batch_tokens is not None and self.batch_tokens < 1:
            raise ConfigError(f"batch_tokens is {self.batch_tokens}; expected at least 1")


class CrossEncoder:
    """Scores (query, passage) pairs; `load` makes one. Safe to use from several threads.

    Attributes:
        identity: What decides the scores, as JSON types: name, sha256, labels, relevant_label, max_length,
            prompt; and path, the folder as a hint or None.
        notices: Counts since loading: pairs_scored, pairs_reused (equal to an earlier one of the same call),
            pairs_windowed (the passage did not fit), queries_truncated.
    """

    def __init__(
        self,
        network: Any,
        tokens: PairTokens,
        *,
        relevant: int | None,
        identity: dict[str, object],
        batch_tokens: int | None = None,
    ) -> None:
        self.identity = identity
        self.notices: Counter[str] = Counter()
        self._network = network
        self._tokens = tokens
        self._relevant = relevant
        self._kind: str = network.device.type
        self._budget = batch_tokens or _BUDGETS[self._kind]
        accepted = inspect.signature(network.forward).parameters
        self._with_types = tokens.with_types and "token_type_ids" in accepted
        self._lock = threading.Lock()  # of the notices

    @classmethod
    def load(cls, model: str | Path, *, settings: RerankSettings = RerankSettings()) -> CrossEncoder:
        """Load a cross-encoder with one or two labels.

        Args:
            model: A folder of transformers or of sentence-transformers' CrossEncoder, or a hub name.
            settings: How it runs.

        Raises:
            ModelError: There is no such model, or it is none that scores pairs.
            ConfigError: A setting that this model or this machine cannot follow.
        """
        device = choose_device(settings.device)
        dtype = choose_dtype(settings.dtype, device)
        found = resolve(model)
        folder = _transformer_folder(found)
        network, tokenizer = _load(found, folder, settings.trust_remote_code)
        relevant = relevant_label({int(label): str(text) for label, text in network.config.id2label.items()})
        limit = _length(found.name, folder, network, tokenizer, settings.max_length)
        prompt = _prompt(found.folder)
        tokens = PairTokens(tokenizer, max_length=limit, prompt=prompt, model=found.name)
        _place(network, device, dtype)
        identity: dict[str, object] = {
            "name": found.name,
            "sha256": fingerprint(found.folder),
            "labels": network.config.num_labels,
            "relevant_label": relevant,
            "max_length": limit,
            "prompt": prompt,
            "path": found.path,
        }
        return cls(network, tokens, relevant=relevant, identity=identity, batch_tokens=settings.batch_tokens)

    def score(
        self, pairs: Sequence[tuple[str, str]], *, progress: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """Score pairs; equal ones are read once.

        Args:
            pairs: (query, passage) texts. An empty passage is scored as such.
            progress: Called after each batch with the number of pairs that it finished.

        Returns:
            (n,) float32 logits, finite; higher is more relevant. Of a model with two labels, the log-odds of
            the relevant one.

        Raises:
            DataError: A pair that is not two strings.
            ModelError: The model gives NaN or infinite logits.
        """
        _check_pairs(pairs)
        rows: dict[tuple[str, str], int] = {}
        wanted = np.array(
            [rows.setdefault((query, passage), len(rows)) for query, passage in pairs], dtype=int
        )
        if not rows:
            return np.empty(0, dtype=np.float32)
        pieces, cut = self._tokens.pieces(list(rows))
        first = np.array([piece.first for piece in pieces])  # (m,) bool: where a pair's windows start
        starts = np.flatnonzero(first)  # (pairs,)
        lengths = np.array([piece.length for piece in pieces], dtype=np.int64)
        if progress is not None:
            progress(len(pairs) - len(rows))

        def forward(batch: np.ndarray) -> np.ndarray:
            logits = self._logits([pieces[row] for row in batch])
            if progress is not None:
                progress(int(first[batch].sum()))
            return logits

        # On a CPU nothing is padded, so that a pair has the same bits alone and in any batch.
        batches = token_batches(lengths, self._budget, same_length=self._kind == "cpu")
        name = str(self.identity["name"])
        logits = run_batches(batches, lengths, forward, model=name)
        owner = np.cumsum(first) - 1  # (m,) the pair of each window
        texts = list(rows)
        require_finite(logits, model=name, what=lambda row: f"the pair {_shown(texts[owner[row]])}")
        with self._lock:
            self.notices.update(
                pairs_scored=len(rows),
                pairs_reused=len(pairs) - len(rows),
                pairs_windowed=int((np.diff(starts, append=len(pieces)) > 1).sum()),
                queries_truncated=cut,
            )
        best = np.maximum.reduceat(logits, starts)  # (pairs,)
        return np.asarray(best[wanted])

    def probability(self, scores: np.ndarray) -> np.ndarray:
        """Turn logits into probabilities of relevance.

        Args:
            scores: (n,) what `score` returned.

        Returns:
            (n,) float32 in [0, 1]: 1 / (1 + exp(-score)).
        """
        values = np.asarray(scores, dtype=np.float32)
        decay = np.exp(-np.abs(values))  # never overflows
        return np.asarray(np.where(values >= 0, np.float32(1), decay) / (1 + decay))

    def _logits(self, pieces: Sequence[Piece]) -> np.ndarray:
        """Run the network on one batch: (batch,) float32."""
        torch = load_torch()
        arrays = self._tokens.batch(pieces)
        if not self._with_types:
            del arrays["token_type_ids"]
        with torch.inference_mode():
            inputs = {key: torch.from_numpy(value).to(self._network.device) for key, value in arrays.items()}
            logits = self._network(**inputs).logits.float()  # (batch, labels)
            if self._relevant is None:
                scores = logits[:, 0]
            else:  # log p / (1 - p) of a softmax over two
                scores = logits[:, self._relevant] - logits[:, 1 - self._relevant]
            return np.asarray(scores.cpu().numpy())


def relevant_label(names: Mapping[int, str]) -> int | None:
    """Find the label that means relevant.

    Args:
        names: The labels' names, `id2label` of a model's config.

    Returns:
        None for a model with one label; for two, the one whose companion says no (`not_relevant`, `false`,
        ...), or 1 where the names say nothing.
    """
    if len(names) == 1:
        return None
    negative = [label for label, name in names.items() if _NEGATIVE & set(re.findall("[a-z]+", name.lower()))]
    return 1 - negative[0] if len(negative) == 1 else 1


def _check_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    for number, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise DataError(f"pair {number}: expected (query, passage), got {pair!r:.60}")
        for kind, text in zip(("query", "passage"), pair, strict=True):
            if not isinstance(text, str):
                raise DataError(f"pair {number}: the {kind} is {text!r:.60}; expected a string")
            if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
                raise DataError(f"pair {number}: the {kind} holds half a character; read its file as UTF-8")


def _shown(pair: tuple[str, str]) -> str:
    return " / ".join(repr(text if len(text) <= 40 else text[:37] + "...") for text in pair)


def _transformer_folder(found: ResolvedModel) -> Path:
    """The folder of the transformer within the model's: modules.json may name one.

    Raises:
        ModelError: The model has further modules.
    """
    listing = found.folder / "modules.json"
    if not listing.is_file():
        return found.folder
    modules = json.loads(listing.read_text(encoding="utf-8"))
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    if kinds != ["Transformer"]:
        raise ModelError(
            f"model {found.name} has the modules {', '.join(kinds)}; "
            "a reranker here is one Transformer with a classification head"
        )
    return found.folder / str(modules[0]["path"])


def _prompt(folder: Path) -> str:
    """What sentence-transformers would put before every query."""
    path = folder / "config_sentence_transformers.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    name = config.get("default_prompt_name")
    return str((config.get("prompts") or {}).get(name) or "") if name else ""


def _load(found: ResolvedModel, folder: Path, trust_remote_code: bool) -> tuple[Any, Any]:
    """Load network (float32, on the CPU) and tokenizer.

    Raises:
        ModelError: They cannot be loaded, have another number of labels, or a head that was never trained.
    """
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

    torch = load_torch()
    common = {"local_files_only": True, "trust_remote_code": trust_remote_code}
    try:
        with quiet_loading():
            config = AutoConfig.from_pretrained(folder, **common)
            if config.num_labels not in (1, 2):
                raise ModelError(
                    f"model {found.name} has {config.num_labels} labels; a reranker needs 1 or 2"
                )
            network, report = AutoModelForSequenceClassification.from_pretrained(
                folder,
                config=config,
                dtype=torch.float32,
                use_safetensors=True,
                output_loading_info=True,
                **common,
            )
            tokenizer = AutoTokenizer.from_pretrained(folder, **common)
    except (OSError, ValueError, RuntimeError, KeyError, ImportError, SafetensorError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"model {found.name} cannot be loaded from {folder}: {_line(error)}") from error
    if report["missing_keys"]:
        raise ModelError(
            f"model {found.name} is no cross-encoder: it has no weights for {min(report['missing_keys'])}"
        )
    return network.eval(), tokenizer


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _length(name: str, folder: Path, network: Any, tokenizer: Any, asked: int | None) -> int:
    """Tokens of a pair: what is asked for, else the least of what tokenizer, folder and positions allow.

    Raises:
        ConfigError: More is asked for than the network has positions.
    """
    positions = _positions(network)
    if asked is not None:
        if asked > positions:
            raise ConfigError(f"max_length {asked}: model {name} reads at most {positions} tokens")
        return asked
    path = folder / "sentence_bert_config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return min(positions, int(tokenizer.model_max_length), int(config.get("max_seq_length") or positions))


def _positions(network: Any) -> int:
    """Tokens that a network has positions for."""
    torch = load_torch()
    for path, module in network.named_modules():
        if path.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            # The RoBERTa line counts from behind its padding position.
            reserved = 0 if module.padding_idx is None else module.padding_idx + 1
            return int(module.num_embeddings) - reserved
    return int(getattr(network.config, "max_position_embeddings", 0) or 512)


def _place(network: Any, device: str, dtype: str) -> None:
    """Move a network to its device and number format.

    The head stays float32: in bfloat16 a logit has three digits, and the best passages would tie.
    """
    torch = load_torch()
    if dtype != "float32":
        base = network.base_model
        base.to(getattr(torch, dtype))
        for child in network.children():
            if child is not base:
                child.register_forward_pre_hook(lambda _, args: tuple(value.float() for value in args))
    elif device == "cpu":
        for module in network.modules():
            if type(module) is torch.nn.Linear:
                _steady(module)
    network.to(device)


def _steady(linear: Any) -> None:
    """Make a linear layer round a row the same way whatever the number of rows.

    Few rows, or rows that do not fill a block, take other kernels and differ in the last bit. The heads see
    one row a pair, so they are filled up to whole blocks; the layers below only where a batch is tiny.
    """
    pad = load_torch().nn.functional.pad
    plain = linear.forward

    def forward(values: Any) -> Any:
        rows = values.reshape(-1, values.shape[-1])
        if values.ndim > 2 and len(rows) >= _ROWS:
            return plain(values)
        results = plain(pad(rows, (0, 0, 0, -len(rows) % _ROWS)))
        return results[: len(rows)].reshape(*values.shape[:-1], -1)

    linear.forward = forward
