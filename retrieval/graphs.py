"""OpenVINO graphs: made once from a torch module, checked against it, kept in the user's cache, run on the CPU.

A graph in the cache is enough to run a model: neither torch nor transformers is needed then. It gives the same bits
for an input alone, in any batch of inputs of its padded length, and from any number of threads (tests hold it to that).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import logging
import math
import os
import shutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from retrieval.batching import padded_lengths
from retrieval.errors import MissingDependencyError, ModelError
from retrieval.runtime import load_torch, quiet_loading

_FORMAT = 2  # of a folder in the cache, and of how graphs are made
_FACTS = "graph.json"
_SHAPES = 16  # of inputs, for which a graph that reads many batches keeps compiled code: each takes about a megabyte
_KEPT = 16  # graphs in the cache; those that were not used for longest go
_LEAST_AGREEMENT = {"float32": 0.9999, "bfloat16": 0.999, "int8": 0.95}
_HEAD = 2  # matrix products of a classification head, of every family: in int8 they spoil what the others found
CALIBRATION = 32
"""How many inputs a quantisation looks at; twice as many were not better."""
_PRECISIONS = {"float32": "f32", "bfloat16": "bf16"}

_PROCESS = os.getpid()

logger = logging.getLogger(__name__)


@functools.cache
def openvino() -> Any:
    """Import OpenVINO when it is first needed, without its telemetry, which reports every import to its makers.

    Raises:
        MissingDependencyError: It is not installed.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # an import of it fails; a stub is used
    try:
        import openvino as module
    except ImportError as error:
        raise MissingDependencyError('OpenVINO is not installed: pip install "retrieve-rerank[cpu]"') from error
    return module


@functools.cache
def _core() -> Any:
    return openvino().Core()


def has_bfloat16() -> bool:
    """Whether this processor computes in bfloat16."""
    return "BF16" in _core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def forked() -> bool:
    """Whether this process was forked off: OpenVINO would wait for threads that exist in its parent only."""
    return os.getpid() != _PROCESS


@dataclass(frozen=True, kw_only=True)
class Padding:
    """How the inputs of a graph that reads a mask are padded: code is compiled for few lengths then.

    Attributes:
        token: Id of the padding token.
        most: Tokens of the longest input that the network takes, or None.
    """

    token: int
    most: int | None


class Graph:
    """A network compiled for this processor. Safe to use from several threads.

    Attributes:
        dtype: The number format in which it computes what is not quantised.
    """

    def __init__(self, file: Path, dtype: str, padding: Padding | None, *, compiled: Path | None = None) -> None:
        """Prepare to run a graph; it is compiled when it is first run.

        Args:
            file: The graph, model.xml with model.bin beside it.
            dtype: float32 or bfloat16, of what is not quantised.
            padding: How inputs are padded; None: not at all, and the graph reads no mask.
            compiled: Where what was compiled is kept, which halves the time of the next process; None: nowhere.
        """
        self._file, self.dtype, self._padding, self._kept = file, dtype, padding, compiled
        self._lock = threading.Lock()
        self._compiled: dict[bool, Any] = {}
        self._idle: dict[bool, list[Any]] = {True: [], False: []}  # requests that no call uses now

    @property
    def streams(self) -> int:
        """How many threads should call `run` at once for most throughput."""
        return int(self._network(False).get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))

    def padded(self, lengths: np.ndarray) -> np.ndarray:
        """The lengths, (n,) int64, to which inputs of some lengths are padded; a batch's are to have one of them."""
        return lengths if self._padding is None else padded_lengths(lengths, self._padding.most)

    def fed(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What the network reads of some inputs: padded, or without the mask where nothing is padded."""
        if self._padding is None:
            return {name: array for name, array in inputs.items() if name != "attention_mask"}
        length = inputs["input_ids"].shape[1]
        room = ((0, 0), (0, int(self.padded(np.array([length]))[0]) - length))
        fills = {"input_ids": self._padding.token}
        return {name: np.pad(array, room, constant_values=fills.get(name, 0)) for name, array in inputs.items()}

    def run(self, inputs: Mapping[str, np.ndarray], *, alone: bool) -> np.ndarray:
        """Run the network.

        Args:
            inputs: Arrays by the names of the module's arguments, each (batch, length) int64, `attention_mask` among
                them; without padding they have all texts of one length.
            alone: All cores for this call, rather than one of several calls at once.

        Returns:
            Its output, (batch, ...) float32.
        """
        network, idle = self._network(alone), self._idle[alone]
        try:
            request = idle.pop()
        except IndexError:  # as many as there are calls at once, and no more: each holds memory of its own
            request = network.create_infer_request()
        outputs = request.infer(self.fed(inputs), share_inputs=True)
        result = np.array(outputs[0], dtype=np.float32)
        idle.append(request)
        return result

    def _network(self, alone: bool) -> Any:
        with self._lock:
            if alone not in self._compiled:
                options: dict[str, Any] = {"INFERENCE_PRECISION_HINT": _PRECISIONS[self.dtype]}
                if alone:
                    options["PERFORMANCE_HINT"] = "LATENCY"
                else:  # many batches, sorted by length: what was compiled for one length is not needed again
                    options |= {"PERFORMANCE_HINT": "THROUGHPUT", "CPU_RUNTIME_CACHE_CAPACITY": _SHAPES}
                threads = os.environ.get("OMP_NUM_THREADS", "")  # which torch and FAISS follow by themselves
                if threads.isdecimal() and int(threads):
                    options["INFERENCE_NUM_THREADS"] = int(threads)
                if self._kept is not None:  # OpenVINO finds out itself whether it fits, and is whole
                    options |= {"CACHE_DIR": str(self._kept), "CACHE_MODE": "OPTIMIZE_SIZE"}
                self._compiled[alone] = _core().compile_model(str(self._file), "CPU", options)
            return self._compiled[alone]


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Inputs that a graph is checked with, and the module's output for them, (batch, ...) float32."""

    inputs: Mapping[str, np.ndarray]
    output: np.ndarray


class Cached:
    """A model's folder in the cache.

    Attributes:
        folder: Where it is, whether it exists or not.
        facts: What was stored with the graph; {} where there is none.
    """

    def __init__(self, kind: str, sha256: str, variant: str = "") -> None:
        """Look for a model's graph.

        Args:
            kind: What the graph computes, such as `bi-encoder`.
            sha256: The model's fingerprint.
            variant: What else decides the graph, such as a pooling.
        """
        from platformdirs import user_cache_path

        version = openvino().__version__
        key = hashlib.sha256("\0".join([kind, sha256, variant, version, str(_FORMAT)]).encode()).hexdigest()
        self.folder = user_cache_path("retrieve-rerank", appauthor=False) / "openvino" / f"{kind}-{key[:32]}"
        self.facts: dict[str, Any] = self._read()

    def _read(self) -> dict[str, Any]:
        """The facts of a whole folder; {} for one that is absent or damaged, which is made again."""
        try:
            facts: dict[str, Any] = json.loads((self.folder / _FACTS).read_text(encoding="utf-8"))
            whole = self._holds(facts["files"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}
        if not whole:
            return {}
        with contextlib.suppress(OSError):  # a cache of somebody else's
            os.utime(self.folder / _FACTS)  # when it was last used
        return facts

    def _holds(self, sizes: Mapping[str, int]) -> bool:
        return all((self.folder / name).stat().st_size == size for name, size in sizes.items())

    def graph(self, dtype: str) -> Graph:
        """Prepare to run the graph."""
        return self._graph("model.xml", dtype)

    def _graph(self, name: str, dtype: str) -> Graph:
        return Graph(self.folder / name, dtype, self._padding(), compiled=self.folder / "compiled")

    def _padding(self) -> Padding | None:
        found = self.facts["padding"]
        return found and Padding(**found)

    def tokenizer(self) -> Any:
        """Return the tokenizer that was stored beside the graph."""
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(self.folder / "tokenizer.json"))

    def dtype(self, wanted: str) -> str:
        """Say in what format the graph computes where `wanted` is asked for.

        Returns:
            `wanted`; for auto, and for what int8 leaves, bfloat16 if this processor has it and the graph agrees with
            its model in it, else float32.

        Raises:
            ModelError: The graph does not agree with its model in this format.
        """
        bfloat16 = self.facts["agreement"].get("bfloat16", 0.0)
        sound = bfloat16 >= _LEAST_AGREEMENT["bfloat16"]
        if wanted in ("auto", "int8"):
            return "bfloat16" if sound and has_bfloat16() else "float32"
        if wanted == "bfloat16" and not sound:
            raise ModelError(f"in bfloat16 it does not agree with torch ({bfloat16:.4f}); use float32")
        return wanted

    def ready(self, name: str, dtype: str, convert: Callable[[], None]) -> str:
        """See to it that there is a graph, and say in what format it computes; see `dtype`.

        Args:
            name: The model's, for messages.
            dtype: What is asked for.
            convert: Makes the graph, by way of `convert`; called where there is none.

        Raises:
            ModelError: There is none, and none can be made; or it does not agree with its model in this format.
        """
        try:
            if not self.facts:
                logger.info("converting %s for OpenVINO, once", name)
                convert()
            if "refused" in self.facts:
                raise ModelError(self.facts["refused"])
            return self.dtype(dtype)
        except (ModelError, OSError) as error:
            raise ModelError(f"model {name} is not run by OpenVINO: {error}") from error

    def convert(
        self,
        module: Any,
        probes: Sequence[Probe],
        tokenizer: Any,
        facts: Mapping[str, Any],
        *,
        padding: Padding,
        per_row: bool,
    ) -> None:
        """Make the graph of a module, check it, and put it into the cache.

        One that does not agree with the module on padded inputs is made for inputs without padding.

        Args:
            module: A torch module in evaluation mode, on the CPU, in float32; `attention_mask` is optional.
            probes: Inputs of several shapes, the first of which is traced, and the module's outputs.
            tokenizer: Stored beside the graph.
            facts: Stored with the graph; JSON types.
            padding: How its inputs can be padded.
            per_row: Whether every row of an output has to agree, or all numbers together.

        Raises:
            ModelError: It cannot be converted, or does not agree with the module; that is remembered.
            OSError: The cache cannot be written.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".making-", dir=self.folder.parent))
        try:
            try:
                agreement = _made(module, probes, work / "padded.xml", padding, per_row)
                padded = all(found >= _LEAST_AGREEMENT[dtype] for dtype, found in agreement.items())
            except ModelError:
                padded = False
            if not padded:
                agreement = _made(module, probes, work / "plain.xml", None, per_row)
            if not agreement["float32"] >= _LEAST_AGREEMENT["float32"]:
                raise ModelError(f"its OpenVINO graph does not agree with torch ({agreement['float32']:.4f})")
            for suffix in (".xml", ".bin"):
                (work / "padded" if padded else work / "plain").with_suffix(suffix).replace(work / f"model{suffix}")
                (work / "padded").with_suffix(suffix).unlink(missing_ok=True)
            tokenizer.save(str(work / "tokenizer.json"))
            sizes = {path.name: path.stat().st_size for path in work.iterdir()}
            how = {"padding": asdict(padding) if padded else None, "agreement": agreement}
            self._publish(work, {**facts, **how, "files": sizes})
        except ModelError as error:
            for path in work.iterdir():
                path.unlink()
            self._publish(work, {"refused": str(error), "files": {}})
            raise
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def quantised(self, key: str, samples: Sequence[Mapping[str, np.ndarray]], *, per_row: bool) -> Graph:
        """Return the graph in 8-bit integers, from the cache; the first time it is made.

        Its ranges of numbers are those that occur in some inputs, so these decide what it computes, in the last digits.

        Args:
            key: Names the quantisation; the same key gives the same graph, whatever the samples.
            samples: Inputs as for `Graph.run`, of one text each, about `CALIBRATION` of them.
            per_row: As in `convert`.

        Raises:
            MissingDependencyError: NNCF is not installed.
            ModelError: It cannot be made, or does not agree with the graph in float32.
        """
        name = f"int8-{key}"
        facts = self.folder / f"{name}.json"
        try:
            sizes: dict[str, int] = json.loads(facts.read_text(encoding="utf-8"))
            if sizes and self._holds(sizes):
                return self._graph(f"{name}.xml", self.dtype("int8"))
        except (OSError, ValueError, AttributeError):
            pass
        logger.info("making an 8-bit graph from %d texts", len(samples))
        with tempfile.TemporaryDirectory(prefix=".making-", dir=self.folder.parent) as place:
            work = Path(place) / f"{name}.xml"
            wanted = self.graph("float32")
            fed = [wanted.fed(one) for one in samples]
            _quantise(self.folder / "model.xml", fed, work, exact=0 if per_row else _HEAD)
            probes = [Probe(inputs=one, output=wanted.run(one, alone=True)) for one in samples]
            made = Graph(work, self.dtype("int8"), self._padding())
            agreement = float(np.mean(_agreements(made, probes, per_row)))
            if not agreement >= _LEAST_AGREEMENT["int8"]:
                raise ModelError(f"in int8 it does not agree with float32 ({agreement:.4f}); use auto")
            sizes = {path.name: path.stat().st_size for path in sorted(Path(place).iterdir())}
            for part in sizes:
                (Path(place) / part).replace(self.folder / part)
            work.with_suffix(".json").write_text(json.dumps(sizes), encoding="utf-8")
            work.with_suffix(".json").replace(facts)
        return self._graph(f"{name}.xml", self.dtype("int8"))

    def _publish(self, work: Path, facts: dict[str, Any]) -> None:
        """Give a finished folder its name; another process may have been faster with the same."""
        (work / _FACTS).write_text(json.dumps(facts), encoding="utf-8")
        if not self._read():
            shutil.rmtree(self.folder, ignore_errors=True)
            try:
                work.replace(self.folder)
            except OSError:
                if not self._read():
                    raise
        self.facts = facts
        for unused in sorted(self.folder.parent.glob(f"*/{_FACTS}"), key=_age)[_KEPT:]:
            shutil.rmtree(unused.parent, ignore_errors=True)


def _age(path: Path) -> float:
    """Minus the time of a file's last change; of one that is just gone, infinity."""
    try:
        return -path.stat().st_mtime
    except OSError:
        return math.inf


def _made(module: Any, probes: Sequence[Probe], file: Path, padding: Padding | None, per_row: bool) -> dict[str, float]:
    """Write the graph of a module, and say how well it agrees with it at least, by number format.

    Raises:
        ModelError: It cannot be traced.
    """
    graphs = [Graph(file, dtype, padding) for dtype in ("float32", *(["bfloat16"] if has_bfloat16() else []))]
    _trace(module, graphs[0].fed(probes[0].inputs), file)
    return {graph.dtype: min(_agreements(graph, probes, per_row)) for graph in graphs}


def _trace(module: Any, inputs: Mapping[str, np.ndarray], file: Path) -> None:
    """Write the graph of a module.

    Raises:
        ModelError: It cannot be traced.
    """
    torch = load_torch()
    example = {name: torch.from_numpy(array) for name, array in inputs.items()}
    try:
        with warnings.catch_warnings(), quiet_loading(), torch.no_grad():
            warnings.simplefilter("ignore")  # on values that tracing takes for constants: probes find out
            graph = openvino().convert_model(module, example_input=example)
        openvino().save_model(graph, str(file), compress_to_fp16=False)
    except Exception as error:  # of any type: torch's tracer, OpenVINO's frontend, the model's own code
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise ModelError(f"it cannot be converted to OpenVINO ({reason})") from error


def _quantise(graph: Path, samples: Sequence[Mapping[str, np.ndarray]], file: Path, *, exact: int) -> None:
    """Write a graph in 8-bit integers, by NNCF's post-training quantisation, but for the last `exact` products.

    Raises:
        MissingDependencyError: NNCF is not installed.
        ModelError: It cannot be made.
    """
    runtime = openvino()  # before NNCF, which would import it with its telemetry
    try:
        import nncf
    except ImportError as error:
        raise MissingDependencyError('int8 needs NNCF: pip install "retrieve-rerank[int8]"') from error
    chatter, level = logging.getLogger("nncf"), logging.getLogger("nncf").level
    try:
        chatter.setLevel(logging.ERROR)
        network = _core().read_model(str(graph))
        products = [node.get_friendly_name() for node in network.get_ordered_ops() if node.get_type_name() == "MatMul"]
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):  # bars
            warnings.simplefilter("ignore")
            made = nncf.quantize(
                network,
                nncf.Dataset(samples, dict),
                preset=nncf.QuantizationPreset.MIXED,
                model_type=nncf.ModelType.TRANSFORMER,
                subset_size=len(samples),
                ignored_scope=nncf.IgnoredScope(names=products[-exact:]) if exact else None,
                advanced_parameters=nncf.AdvancedQuantizationParameters(disable_bias_correction=True),
            )
        runtime.save_model(made, str(file), compress_to_fp16=False)
    except Exception as error:  # of any type, as with tracing
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise ModelError(f"it cannot be quantised ({reason})") from error
    finally:
        chatter.setLevel(level)


def _agreements(graph: Graph, probes: Sequence[Probe], per_row: bool) -> list[float]:
    """How well a graph agrees with its module: 1 - |a - b|^2 / 2 |b|^2, at most 1; of unit vectors, their cosine."""
    found: list[float] = []
    pairs = [(graph.run(probe.inputs, alone=True), probe.output) for probe in probes]
    if not per_row:
        pairs = [tuple(np.concatenate(side).reshape(1, -1) for side in zip(*pairs, strict=True))]  # type: ignore[list-item]
    for got, wanted in pairs:
        error = ((got.astype(np.float64) - wanted) ** 2).sum(axis=-1)
        size = (wanted.astype(np.float64) ** 2).sum(axis=-1)
        found += list(1 - error / np.maximum(2 * size, 1e-12))
    return [float(one) if np.isfinite(one) else -1.0 for one in found]
