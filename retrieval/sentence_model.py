"""A loaded sentence-transformers model, fed with token ids: its tokenizer, its limits, its modules."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from retrieval.batching import filled
from retrieval.errors import ModelError
from retrieval.models import ResolvedModel
from retrieval.runtime import load_torch, quiet_loading

# On a CPU, matrix products of few rows take other kernels, which round differently (measured: up to 10 rows).
# Batches are filled up to this many rows, so that a text has the same bits in any batch.
_EXACT_ROWS = 32

_UNLIMITED = 10**9  # what tokenizers without a limit say is larger

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The special tokens around a text: their ids and type ids, and the type id of the text's own tokens."""

    before: list[int]
    after: list[int]
    types_before: list[int]
    types_after: list[int]
    type_inside: int

    @property
    def size(self) -> int:
        """Tokens that the frame takes."""
        return len(self.before) + len(self.after)


class SentenceModel:
    """A model's tokenizer and modules.

    Attributes:
        model: The SentenceTransformer, with the pooling in force.
        name: The model's name, for messages.
        device: cpu, cuda, cuda:N or mps.
        frame: The special tokens of one text.
        limit: Tokens of one input that the model takes, special tokens included; None where not stated.
        metric: cosine or dot.
        pooling: The pooling mode in force, several joined by ``+``; None without a pooling module.
        query_prompt: The model's own prompt for queries, or None.
        document_prompt: The model's own prompt for documents, or None.
    """

    def __init__(self, model: Any, *, name: str, device: str, pooling: str | None) -> None:
        """Use ``load_sentence_model``.

        Args:
            model: A SentenceTransformer on its device, in evaluation mode.
            name: The model's name.
            device: Its device.
            pooling: A pooling mode to use instead of the model's own.

        Raises:
            ModelError: The model is of a kind that cannot be used.
        """
        self.model, self.name, self.device = model, name, device
        modules = list(model)
        if not hasattr(modules[0], "auto_model"):
            kind = type(modules[0]).__name__
            raise ModelError(f"model {name} starts with a {kind} module; only transformer encoders are supported")
        self._tokenizer = _backend(model.tokenizer, name)
        self.frame = _frame(self._tokenizer, name)
        self._with_types = "token_type_ids" in getattr(model.tokenizer, "model_input_names", [])
        self._pad = int(getattr(model.tokenizer, "pad_token_id", None) or 0)
        self.limit = _limit(model, modules[0].auto_model)
        self.metric = str(model.similarity_fn_name)
        if self.metric not in ("cosine", "dot"):
            raise ModelError(f"model {name} is made for {self.metric} distance; expected cosine or dot")
        places = [place for place, module in enumerate(modules) if type(module).__name__ == "Pooling"]
        if pooling is not None:
            if not places:
                raise ModelError(f"model {name} has no pooling module, so pooling {pooling!r} cannot replace it")
            modules[places[-1]] = model[places[-1]] = _other_pooling(modules[places[-1]], pooling)
        self.pooling = _pooling_mode(modules[places[-1]]) if places else None
        border = places[-1] + 1 if places else len(modules)
        self._modules, self._after_pooling = modules[:border], modules[border:]
        self.query_prompt = _prompt(model, ("query",))
        self.document_prompt = _prompt(model, ("document", "passage", "corpus"))

    def tokenize(self, texts: Sequence[str]) -> list[Any]:
        """Tokenise whole texts, without special tokens: encodings of the tokenizers package, one a text."""
        found: list[Any] = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return found

    def forward(self, tokens: Sequence[np.ndarray], *, prompt_length: int = 0) -> np.ndarray:
        """Run one batch through all modules.

        On a CPU all texts of the batch must have one length; each row's bits then depend on no other row.

        Args:
            tokens: (batch,) ids of each text, without special tokens.
            prompt_length: Tokens at the start, special ones included, that a pooling which excludes prompts
                leaves out.

        Returns:
            (batch, dim) float32, not normalised unless the model does so itself.
        """
        torch = load_torch()
        count, exact = len(tokens), self.device == "cpu"
        if exact:
            size = len(tokens[0]) + self.frame.size
            tokens = [tokens[row] for row in filled(np.arange(count), size, _EXACT_ROWS)]
        features: dict[str, Any] = {
            name: torch.from_numpy(array).to(self.device) for name, array in self.inputs(tokens).items()
        }
        if prompt_length:
            features["prompt_length"] = prompt_length
        with torch.inference_mode():
            for module in self._modules:
                features = module(features)
            # what follows works on one row a text: in float32, and with as many rows as above
            pooled = features["sentence_embedding"][:count].float()
            if exact:
                pooled = pooled[torch.from_numpy(filled(np.arange(count), 1, _EXACT_ROWS))]
            features["sentence_embedding"] = pooled
            for module in self._after_pooling:
                features = module(features)
            vectors: np.ndarray = features["sentence_embedding"][:count].float().cpu().numpy()
        return vectors

    def inputs(self, tokens: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """The transformer's inputs, each (batch, longest) int64, padded on the right."""
        frame = self.frame
        longest = max(1, max(len(one) for one in tokens) + frame.size)
        ids = np.full((len(tokens), longest), self._pad, dtype=np.int64)
        mask, types = np.zeros_like(ids), np.zeros_like(ids)
        first = len(frame.before)
        for row, one in enumerate(tokens):
            last = first + len(one)
            stop = last + len(frame.after)
            ids[row, :first], ids[row, first:last], ids[row, last:stop] = frame.before, one, frame.after
            types[row, :first], types[row, last:stop] = frame.types_before, frame.types_after
            types[row, first:last] = frame.type_inside
            mask[row, : max(1, stop)] = 1  # an empty text without special tokens is one padding token
        inputs = {"input_ids": ids, "attention_mask": mask}
        return inputs | {"token_type_ids": types} if self._with_types else inputs


def load_sentence_model(
    resolved: ResolvedModel, *, device: str, dtype: str, pooling: str | None, trust_remote_code: bool
) -> SentenceModel:
    """Load a sentence-transformers folder, or a plain Hugging Face encoder with a pooling on top.

    Args:
        resolved: The model's folder.
        device: As ``choose_device`` returned it.
        dtype: Name of a torch dtype, for the transformer's weights.
        pooling: Pooling mode; None takes the model's own, or the mean for a plain encoder, with a warning.
        trust_remote_code: Run Python code that lies in the folder.

    Raises:
        ModelError: The model cannot be loaded, or is of a kind that cannot be used.
    """
    torch = load_torch()
    with quiet_loading():
        import transformers
        from safetensors import SafetensorError
        from sentence_transformers import SentenceTransformer

        version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
        options = {
            "use_safetensors": True,
            "dtype" if version >= (4, 56) else "torch_dtype": getattr(torch, dtype),
        }
        try:
            model = SentenceTransformer(
                str(resolved.folder),
                device=device,
                model_kwargs=options,
                local_files_only=True,
                trust_remote_code=trust_remote_code,
            ).eval()
        except (ArithmeticError, AttributeError, ImportError, LookupError, OSError, RuntimeError, TypeError,
                ValueError, SafetensorError) as error:  # fmt: skip
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ModelError(f"model {resolved.name} ({resolved.folder}) cannot be loaded: {reason}") from error
    loaded = SentenceModel(model, name=resolved.name, device=device, pooling=pooling)
    if pooling is None and not (resolved.folder / "modules.json").is_file():
        logger.warning(
            "model %s does not say how it pools; %s pooling is assumed (--pooling)",
            resolved.name,
            loaded.pooling,
        )
    made_up = _weights_not_stored(resolved.folder, next(iter(model)).auto_model)
    if made_up:
        logger.warning(
            "model %s: %d of its weights are not in its files and are random, such as %s; its vectors may mean nothing",
            resolved.name,
            len(made_up),
            made_up[0],
        )
    return loaded


def _weights_not_stored(folder: Path, transformer: Any) -> list[str]:
    """Parameters that no safetensors file of the model holds, whatever prefix it stores them under.

    A pooler is left out: sentence-transformers pools by itself, and most encoders are stored without one.
    """
    from safetensors import safe_open

    stored: set[str] = set()
    for file in (*folder.glob("*.safetensors"), *folder.glob("*/*.safetensors")):
        with safe_open(file, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 (not a mapping)
                parts = name.replace("gamma", "weight").replace("beta", "bias").split(".")
                stored.update(".".join(parts[first:]) for first in range(len(parts)))
    return [name for name, _ in transformer.named_parameters() if name not in stored and "pooler" not in name]


def _backend(tokenizer: Any, name: str) -> Any:
    """A copy of the fast tokenizer's core, without truncation and padding."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not hasattr(backend, "encode_batch"):
        raise ModelError(f"model {name} has no fast tokenizer (tokenizer.json); save it once with one")
    copy = type(backend).from_str(backend.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy


def _frame(tokenizer: Any, name: str) -> Frame:
    """Derive the special tokens around a text from a probe."""
    probe = "a"
    bare, full = tokenizer.encode(probe, add_special_tokens=False), tokenizer.encode(probe)
    size = len(bare.ids)
    for first in range(len(full.ids) - size + 1):
        last = first + size
        inside = not any(full.special_tokens_mask[first:last])
        if full.ids[first:last] == bare.ids and (inside or size == len(full.ids)):
            return Frame(
                before=full.ids[:first],
                after=full.ids[last:],
                types_before=full.type_ids[:first],
                types_after=full.type_ids[last:],
                type_inside=full.type_ids[first] if size else 0,
            )
    raise ModelError(f"model {name}: its tokenizer does not put special tokens around a text as a frame")


def _limit(model: Any, transformer: Any) -> int | None:
    """The smallest of what configuration, tokenizer and position embeddings allow, in tokens."""
    torch = load_torch()
    config = transformer.config
    stated = [
        model.max_seq_length,
        model.tokenizer.model_max_length,
        getattr(config, "max_position_embeddings", None),
    ]
    for path, module in transformer.named_modules():
        if path.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            # the RoBERTa line counts positions from the padding id on
            unused = 0 if module.padding_idx is None else module.padding_idx + 1
            stated.append(module.num_embeddings - unused)
    limits = [int(value) for value in stated if value is not None and 0 < value < _UNLIMITED]
    return min(limits, default=None)


def _other_pooling(module: Any, mode: str) -> Any:
    """A pooling module like the given one, of another mode."""
    width = getattr(module, "embedding_dimension", None) or module.word_embedding_dimension
    return type(module)(width, pooling_mode=mode, include_prompt=module.include_prompt)


def _pooling_mode(module: Any) -> str:
    mode = getattr(module, "pooling_mode", None)
    if mode is None:  # sentence-transformers 5
        return str(module.get_pooling_mode_str())
    return mode if isinstance(mode, str) else "+".join(mode)


def _prompt(model: Any, names: Sequence[str]) -> str | None:
    """The first prompt that the model has under one of the names, else its default prompt."""
    for name in [*names, model.default_prompt_name]:
        if name is not None and model.prompts.get(name):
            return str(model.prompts[name])
    return None
