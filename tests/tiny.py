"""Tiny models with random weights, made on the spot: every encoder family, poolings, prompts, cross-encoders.

Their vectors mean nothing, so tests ask only what holds for every encoder: equal texts have equal vectors,
our vectors are sentence-transformers' vectors, what is cut is counted.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

SENTENCES = [
    "A ferry crosses the strait twice a day, and the harbour master notes who comes and goes.",
    "Copper conducts heat better than iron does; silver is better still.",
    "def mean(values): return sum(values) / len(values)",
    "Which bird builds a hanging nest? The weaver, from grass and leaves.",
    "Überraschend früh blühte der Kirschbaum in Łódź – 桜 が 咲く.",
    "Seven of 12 tests failed: 0, 3, 4, 6, 8, 9, 11!",
]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
FAMILIES = ("bert", "roberta", "albert", "electra", "deberta-v2", "distilbert", "mpnet", "xlm-roberta")
DIM = 32
LIMIT = 128  # positions of the ordinary tiny model
LONG_LIMIT = 8192


class TinyModels:
    """Makes a model the first time its name is asked for.

    Names: ``mean``, ``cls``, ``prompts`` (query and document prompt), ``dim48``, ``other`` (other weights),
    ``dot`` (dot product), ``dense`` (pooling, dense, normalise), ``noprompt`` (prompt left out of pooling),
    ``plain`` (a Hugging Face folder), ``long`` (8,192 positions), each of ``FAMILIES`` (plain folders),
    ``cross1``, ``cross2`` (cross-encoders with one and two labels, Hugging Face folders).
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(self, name: str) -> Path:
        folder = self.root / name
        if not folder.exists():
            _quietly(lambda: _make(name, folder))
        return folder


def _quietly(work: Callable[[], None]) -> None:
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    work()


def _make(name: str, folder: Path) -> None:
    if name in FAMILIES:
        make_family(name, folder)
    elif name.startswith("cross"):
        make_cross_encoder(folder, labels=int(name.removeprefix("cross")))
    elif name == "plain":
        make_plain(folder)
    else:
        prompts = {"query": "search: ", "document": "passage: "}
        makers: dict[str, dict[str, Any]] = {
            "mean": {},
            "cls": {"pooling": "cls"},
            "prompts": {"prompts": prompts},
            "noprompt": {"prompts": prompts, "include_prompt": False},
            "dim48": {"dim": 48, "seed": 2},
            "other": {"seed": 3},
            "dot": {"similarity": "dot"},
            "dense": {"dense": 16},
            "long": {"positions": LONG_LIMIT},
        }
        make_bi_encoder(folder, **makers[name])


def make_tokenizer(kind: str = "bytes", limit: int = LIMIT) -> Any:
    """A fast tokenizer trained on ``SENTENCES``: byte-level BPE, WordPiece or Unigram."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    backend: Any
    trainer: Any
    if kind == "bytes":
        backend = Tokenizer(models.BPE(unk_token="[UNK]"))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=500, special_tokens=PIECES, initial_alphabet=alphabet, show_progress=False
        )
    elif kind == "words":
        backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        backend.normalizer = normalizers.BertNormalizer(lowercase=True)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=PIECES, show_progress=False)
    else:
        backend = Tokenizer(models.Unigram())
        backend.normalizer = normalizers.NFKC()
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=200, special_tokens=PIECES, unk_token="[UNK]", show_progress=False)
    backend.train_from_iterator(SENTENCES * 10, trainer)
    special = [(piece, backend.token_to_id(piece)) for piece in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=special
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=limit,
        model_input_names=["input_ids", "attention_mask"] + ["token_type_ids"] * (kind == "words"),
    )


def _modernbert(tokenizer: Any, dim: int, positions: int, **more: Any) -> Any:
    from transformers import ModernBertConfig

    return ModernBertConfig(
        vocab_size=len(tokenizer),
        hidden_size=dim,
        intermediate_size=2 * dim,
        num_hidden_layers=3,
        num_attention_heads=2,
        max_position_embeddings=positions,
        pad_token_id=tokenizer.pad_token_id,
        cls_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
        **more,
    )


def make_plain(folder: Path, *, dim: int = DIM, seed: int = 1, positions: int = LIMIT) -> None:
    """A ModernBERT encoder as a plain Hugging Face folder."""
    import torch
    from transformers import ModernBertModel

    torch.manual_seed(seed)
    tokenizer = make_tokenizer(limit=positions)
    ModernBertModel(_modernbert(tokenizer, dim, positions)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def make_bi_encoder(
    folder: Path,
    *,
    dim: int = DIM,
    seed: int = 1,
    positions: int = LIMIT,
    pooling: str = "mean",
    include_prompt: bool = True,
    prompts: dict[str, str] | None = None,
    similarity: str | None = None,
    dense: int | None = None,
) -> None:
    """A ModernBERT bi-encoder as a sentence-transformers folder."""
    import torch
    from sentence_transformers import SentenceTransformer

    try:
        from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
    except ImportError:  # sentence-transformers 5
        from sentence_transformers.models import Dense, Normalize, Pooling, Transformer

    plain = folder.with_name(f"{folder.name}-plain")
    make_plain(plain, dim=dim, seed=seed, positions=positions)
    torch.manual_seed(seed)
    modules: list[Any] = [
        Transformer(str(plain)),
        Pooling(dim, pooling_mode=pooling, include_prompt=include_prompt),
    ]
    if dense is not None:
        modules += [Dense(dim, dense), Normalize()]
    model = SentenceTransformer(
        modules=modules, prompts=prompts, similarity_fn_name=similarity, device="cpu", local_files_only=True
    )
    model.save(str(folder), create_model_card=False)


def make_cross_encoder(folder: Path, *, labels: int, seed: int = 4, positions: int = LIMIT) -> None:
    """A ModernBERT cross-encoder as a Hugging Face folder."""
    import torch
    from transformers import ModernBertForSequenceClassification

    torch.manual_seed(seed + labels)
    tokenizer = make_tokenizer(limit=positions)
    config = _modernbert(tokenizer, DIM, positions, num_labels=labels)
    ModernBertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def make_family(family: str, folder: Path, *, seed: int = 1) -> None:
    """An encoder of a family as a plain Hugging Face folder, with the family's kind of tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModel

    kinds = {"roberta": "bytes", "albert": "pieces", "deberta-v2": "pieces", "xlm-roberta": "pieces"}
    tokenizer = make_tokenizer(kinds.get(family, "words"))
    # the RoBERTa line counts positions from the padding id on: that many positions hold no text
    shifted = family in ("roberta", "xlm-roberta", "mpnet")
    shape: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "max_position_embeddings": LIMIT + 2 if shifted else LIMIT,
        "pad_token_id": tokenizer.pad_token_id,
    }
    if family == "distilbert":
        shape |= {"dim": DIM, "hidden_dim": 2 * DIM, "n_layers": 2, "n_heads": 2}
    else:
        shape |= {
            "hidden_size": DIM,
            "intermediate_size": 2 * DIM,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
        }
    if family in ("albert", "electra"):
        shape["embedding_size"] = 16
    if family == "deberta-v2":
        shape |= {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16}
    torch.manual_seed(seed)
    AutoModel.from_config(AutoConfig.for_model(family, **shape)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
