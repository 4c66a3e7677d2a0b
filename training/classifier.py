"""The sequence classifier that becomes a cross-encoder: started from any encoder, written as a folder to serve."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retrieval.cross_model import pair_spec
from retrieval.errors import ConfigError, ModelError
from retrieval.models import ResolvedModel
from retrieval.runtime import load_torch, quiet_loading

_NAMES = {1: {0: "relevant"}, 2: {0: "not_relevant", 1: "relevant"}}  # of labels, by their number


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """A network to train, and how it reads pairs.

    Attributes:
        network: A sequence classifier of transformers, float32, on the CPU.
        tokenizer: Its tokenizer.
        max_length: Tokens of a pair, special ones included.
        prompt: Put before every query.
    """

    network: Any
    tokenizer: Any
    max_length: int
    prompt: str


def start_classifier(
    found: ResolvedModel,
    *,
    labels: int | None = None,
    max_length: int | None = None,
    prompt: str | None = None,
    seed: int = 0,
    trust_remote_code: bool = False,
) -> Classifier:
    """Load a cross-encoder, or an encoder with a fresh head.

    Args:
        found: The model. Of a sentence-transformers model the transformer is taken.
        labels: 1 or 2; None: those of a cross-encoder, 1 for an encoder. Another number makes a fresh head.
        max_length: Tokens of a pair; None: what the model takes.
        prompt: Put before every query; None: a cross-encoder's own, none for an encoder.
        seed: Of weights that the model does not have.
        trust_remote_code: Whether code that comes with the model may run.

    Raises:
        ModelError: It cannot be loaded, or lacks weights below its head.
        ConfigError: More tokens than the model has positions.
    """
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

    torch = load_torch()
    folder = _transformer(found)
    common = {"local_files_only": True, "trust_remote_code": trust_remote_code}
    try:
        with quiet_loading(), torch.random.fork_rng(devices=[]):
            config = AutoConfig.from_pretrained(folder, **common)
            tokenizer = AutoTokenizer.from_pretrained(folder, **common)
            trained = any("ForSequenceClassification" in name for name in config.architectures or ())
            kept = trained and config.num_labels in _NAMES and labels in (None, config.num_labels)
            if not kept:
                config.id2label = _NAMES[labels or 1]
                config.label2id = {name: label for label, name in config.id2label.items()}
            torch.manual_seed(seed)
            network, report = AutoModelForSequenceClassification.from_pretrained(
                folder,
                config=config,
                dtype=torch.float32,
                use_safetensors=True,
                output_loading_info=True,
                ignore_mismatched_sizes=not kept,
                **common,
            )
            spec = pair_spec(found, folder, network, tokenizer)
            limit = spec.max_length(max_length, found.name)
    except (ConfigError, ModelError):
        raise
    except Exception as error:  # of any type: the tokenizers library raises plain Exceptions
        reason = " ".join(str(error).split())[:300]
        raise ModelError(f"model {found.name} cannot be trained as a cross-encoder: {reason}") from error
    missing = [name for name in report["missing_keys"] if kept or not _is_head(network, name)]
    if missing:
        raise ModelError(f"model {found.name} has no weights for {min(missing)}; get the model again")
    if prompt is None:
        prompt = spec.prompt if trained else ""
    return Classifier(network=network, tokenizer=tokenizer, max_length=limit, prompt=prompt)


def save_classifier(start: Classifier, folder: Path, *, half: bool = False) -> None:
    """Write a network as it is now, with its tokenizer, limit and prompt; safetensors.

    Args:
        start: What `start_classifier` returned.
        folder: The folder to make.
        half: Write the weights as float16 instead of float32.
    """
    with quiet_loading():
        weights = start.network.state_dict()
        if half:
            weights = {name: value.half() if value.is_floating_point() else value for name, value in weights.items()}
        start.network.save_pretrained(folder, state_dict=weights)
        start.tokenizer.model_max_length = start.max_length
        start.tokenizer.save_pretrained(folder)
    if start.prompt:
        _save_prompt(start.prompt, folder)


def _save_prompt(prompt: str, folder: Path) -> None:
    """Add the files by which sentence-transformers finds a prompt, in the form of the release installed here."""
    with quiet_loading():
        from sentence_transformers import CrossEncoder

        whole = CrossEncoder(
            str(folder), device="cpu", local_files_only=True, prompts={"query": prompt}, default_prompt_name="query"
        )
        whole.save_pretrained(str(folder / "whole"), create_model_card=False)
    for name in ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"):
        if (folder / "whole" / name).is_file():
            (folder / "whole" / name).rename(folder / name)
    shutil.rmtree(folder / "whole")


def _transformer(found: ResolvedModel) -> Path:
    """The folder of the transformer: of a sentence-transformers model, that of its first module.

    Raises:
        ModelError: The first module is something else.
    """
    listing = found.folder / "modules.json"
    if not listing.is_file():
        return found.folder
    first = json.loads(listing.read_text(encoding="utf-8"))[0]
    if not str(first["type"]).endswith("Transformer"):
        raise ModelError(f"model {found.name} starts with the module {first['type']}; expected a Transformer")
    return found.folder / str(first["path"])


def _is_head(network: Any, name: str) -> bool:
    """Whether a weight belongs to what a head brings: outside the encoder, or its pooler."""
    inside = name.startswith(f"{network.base_model_prefix}.")
    return not inside or ".pooler." in name
