"""The network under a cross-encoder: found, loaded, measured and put on its device."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from retrieval.errors import ModelError
from retrieval.models import ResolvedModel
from retrieval.pairs import PairNetwork, PairSpec
from retrieval.runtime import load_torch, quiet_loading, use_flash_attention

_ROWS = 16  # a matrix product of fewer rows, or of an odd number by one column, rounds differently


def transformer_folder(found: ResolvedModel) -> Path:
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


def query_prompt(folder: Path) -> str:
    """What sentence-transformers would put before every query."""
    config = _settings(folder / "config_sentence_transformers.json")
    name = config.get("default_prompt_name")
    return str((config.get("prompts") or {}).get(name) or "") if name else ""


def _settings(path: Path) -> dict[str, Any]:
    """Read one of a model's optional JSON files; {} where it is absent.

    Raises:
        ModelError: It is damaged.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if isinstance(found, dict):
            return found
    except ValueError:
        pass
    raise ModelError(f"{path} is damaged: expected a JSON object; get the model again")


def load_network(found: ResolvedModel, folder: Path, trust_remote_code: bool) -> tuple[Any, Any]:
    """Load network (float32, on the CPU) and tokenizer.

    Raises:
        ModelError: They cannot be loaded, have another number of labels, or a head that was never trained.
    """
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

    torch = load_torch()
    common = {"local_files_only": True, "trust_remote_code": trust_remote_code}
    try:
        with quiet_loading():
            config = AutoConfig.from_pretrained(folder, **common)
            if config.num_labels not in (1, 2):
                raise ModelError(f"model {found.name} has {config.num_labels} labels; a reranker needs 1 or 2")
            network, report = AutoModelForSequenceClassification.from_pretrained(
                folder,
                config=config,
                dtype=torch.float32,
                use_safetensors=True,
                output_loading_info=True,
                **common,
            )
            tokenizer = AutoTokenizer.from_pretrained(folder, **common)
    except ModelError:
        raise
    except Exception as error:  # of any type: the tokenizers library raises plain Exceptions
        reason = " ".join(str(error).split())[:300]
        raise ModelError(f"model {found.name} cannot be loaded from {folder}: {reason}") from error
    if report["missing_keys"]:
        raise ModelError(f"model {found.name} is no cross-encoder: it has no weights for {min(report['missing_keys'])}")
    return network.eval(), tokenizer


def pair_spec(found: ResolvedModel, folder: Path, network: Any, tokenizer: Any) -> PairSpec:
    """Say what has to be known of a loaded cross-encoder."""
    positions = _positions(network)
    stated = _settings(folder / "sentence_bert_config.json").get("max_seq_length")
    return PairSpec(
        labels={str(label): str(text) for label, text in network.config.id2label.items()},
        positions=positions,
        limit=min(positions, int(tokenizer.model_max_length), int(stated or positions)),
        pad=tokenizer.pad_token_id or 0,
        with_types="token_type_ids" in tokenizer.model_input_names,
        prompt=query_prompt(found.folder),
    )


class TorchPairs:
    """A cross-encoder's network, run by torch; see `pairs.PairNetwork`.

    Attributes:
        inputs: Names of the inputs that the network reads.
    """

    workers = 1
    inputs: tuple[str, ...]

    def __init__(self, network: Any, *, with_types: bool) -> None:
        """Take a network of transformers that is on its device; `with_types` as in `pairs.PairSpec`."""
        self._network = network
        self.kind: str = network.device.type
        accepted = inspect.signature(network.forward).parameters
        self.inputs = ("input_ids", "attention_mask")
        if with_types and "token_type_ids" in accepted:
            self.inputs += ("token_type_ids",)

    def padded(self, lengths: np.ndarray) -> np.ndarray:
        """See `pairs.PairNetwork`."""
        return lengths

    def logits(self, inputs: Mapping[str, np.ndarray], *, alone: bool = True) -> np.ndarray:
        """Read one batch: (batch, labels) float32."""
        torch = load_torch()
        with torch.inference_mode():
            tensors = {name: torch.from_numpy(inputs[name]).to(self._network.device) for name in self.inputs}
            return np.asarray(self._network(**tensors).logits.float().cpu().numpy())

    def quantised(self, samples: Sequence[Mapping[str, np.ndarray]], key: str) -> PairNetwork:
        """Not by torch."""
        raise NotImplementedError


def _positions(network: Any) -> int:
    """Tokens that a network has positions for."""
    torch = load_torch()
    for path, module in network.named_modules():
        if path.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            # The RoBERTa line counts from behind its padding position.
            reserved = 0 if module.padding_idx is None else module.padding_idx + 1
            return int(module.num_embeddings) - reserved
    return int(getattr(network.config, "max_position_embeddings", 0) or 512)


def place(network: Any, device: str, dtype: str) -> None:
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
    use_flash_attention(network, device=device, dtype=dtype)


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
