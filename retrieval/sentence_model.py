"""A loaded sentence-transformers model, fed with token ids, run by torch."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from retrieval.batching import filled
from retrieval.errors import ModelError
from retrieval.models import ResolvedModel
from retrieval.runtime import load_torch, quiet_loading, use_flash_attention
from retrieval.texts import TextModel, TextSpec, bare_tokenizer, frame_of

# On a CPU, matrix products of few rows take other kernels, which round differently (measured: up to 10 rows).
# Batches are filled up to this many rows, so that a text has the same bits in any batch.
_EXACT_ROWS = 32

_UNLIMITED = 10**9  # what tokenizers without a limit say is larger

logger = logging.getLogger(__name__)


class SentenceModel(TextModel):
    """A model's tokenizer and modules, run by torch.

    Attributes:
        model: The SentenceTransformer, with the pooling in force.
        made_up: Parameters that no file of the model holds, and that are random therefore.
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
        self.model = model
        self.made_up: list[str] = []
        modules = list(model)
        if not hasattr(modules[0], "auto_model"):
            kind = type(modules[0]).__name__
            raise ModelError(f"model {name} starts with a {kind} module; only transformer encoders are supported")
        metric = str(model.similarity_fn_name)
        if metric not in ("cosine", "dot"):
            raise ModelError(f"model {name} is made for {metric} distance; expected cosine or dot")
        places = [place for place, module in enumerate(modules) if type(module).__name__ == "Pooling"]
        if pooling is not None:
            if not places:
                raise ModelError(f"model {name} has no pooling module, so pooling {pooling!r} cannot replace it")
            modules[places[-1]] = model[places[-1]] = _other_pooling(modules[places[-1]], pooling)
        border = places[-1] + 1 if places else len(modules)
        self._modules, self._after_pooling = modules[:border], modules[border:]
        tokenizer = bare_tokenizer(model.tokenizer, name)
        spec = TextSpec(
            frame=frame_of(tokenizer, name),
            pad=int(getattr(model.tokenizer, "pad_token_id", None) or 0),
            with_types="token_type_ids" in getattr(model.tokenizer, "model_input_names", []),
            limit=_limit(model, modules[0].auto_model),
            metric=metric,
            pooling=_pooling_mode(modules[places[-1]]) if places else None,
            query_prompt=_prompt(model, ("query",)),
            document_prompt=_prompt(model, ("document", "passage", "corpus")),
        )
        super().__init__(tokenizer, spec, name=name, device=device)

    def forward(self, tokens: Sequence[np.ndarray], *, prompt_length: int = 0, alone: bool = True) -> np.ndarray:
        """See ``TextModel``."""
        torch = load_torch()
        count, exact = len(tokens), self.device == "cpu"
        if exact:
            size = len(tokens[0]) + self.spec.frame.size
            tokens = [tokens[row] for row in filled(np.arange(count), size, _EXACT_ROWS)]
        features = self._unpadded(tokens) or {
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

    def _unpadded(self, tokens: Sequence[np.ndarray]) -> dict[str, Any] | None:
        """One batch as one sequence without padding, as sentence-transformers makes it for flash attention; else None.

        The sequence is (1, tokens of all texts), with the borders of the texts beside it.
        """
        first = self._modules[0]
        offset = getattr(first, "_flatten_position_offset", None)  # of the first position, where a network counts so
        if not getattr(first, "can_flatten_inputs", False) or offset is None:
            return None
        before, after = self.spec.frame.before, self.spec.frame.after
        ids = [[*before, *one.tolist(), *after] or [self.spec.pad] for one in tokens]
        features: dict[str, Any] = dict(first.data_collator([{"input_ids": one} for one in ids]))
        features.pop("labels", None)
        features["position_ids"] = features["position_ids"] + offset
        return {name: value.to(self.device) if hasattr(value, "to") else value for name, value in features.items()}


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
    first = next(iter(model))
    if use_flash_attention(getattr(first, "auto_model", None), device=device, dtype=dtype):
        first.unpad_inputs = getattr(first, "unpad_inputs", None)  # looks again whether it can do without padding
    loaded = SentenceModel(model, name=resolved.name, device=device, pooling=pooling)
    loaded.made_up = made_up = _weights_not_stored(resolved.folder, next(iter(model)).auto_model)
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
