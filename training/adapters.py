"""Low-rank adapters (LoRA: Hu et al. 2021), by peft: put into a transformer for training, merged into what is saved."""

from __future__ import annotations

import copy
from importlib.util import find_spec
from typing import Any

from retrieval.errors import ConfigError, MissingDependencyError
from retrieval.runtime import load_torch


def add_adapters(transformer: Any, *, rank: int, seed: int) -> None:
    """Freeze a transformer's weights and add adapters to all its linear layers.

    Args:
        transformer: A transformers model; changed in place.
        rank: Of the adapters' matrices; they are scaled by 2.
        seed: For their first values.

    Raises:
        MissingDependencyError: peft is not installed.
        ConfigError: The model has no layer that takes them.
    """
    if find_spec("peft") is None:
        raise MissingDependencyError("LoRA needs peft; install it with: pip install peft, or train without lora_rank")
    from peft import LoraConfig, inject_adapter_in_model  # type: ignore[import-not-found,unused-ignore]  # optional

    load_torch().manual_seed(seed)
    config = LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear")
    try:
        inject_adapter_in_model(config, transformer)
    except ValueError as error:
        raise ConfigError(f"LoRA does not work with this model: {error}") from error


def merged(model: Any) -> Any:
    """A copy of a model with its adapters merged into its weights; the model stays as it is."""
    from peft.tuners.lora import LoraLayer  # type: ignore[import-not-found,unused-ignore]  # optional

    plain = copy.deepcopy(model)
    layers = [(name, layer) for name, layer in plain.named_modules() if isinstance(layer, LoraLayer)]
    for name, layer in layers:
        layer.merge()
        parent, _, child = name.rpartition(".")
        setattr(plain.get_submodule(parent), child, layer.get_base_layer())
    return plain
