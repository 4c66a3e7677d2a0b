"""The names of metrics: every spelling in, one out.

`ndcg@10` may come as `nDCG@10` (ir_measures), `ndcg_cut_10` (trec_eval), `NDCG@10` (BEIR) or `ndcg_at_10` (MTEB).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches

from retrieval.errors import ConfigError

_NAMES = {
    "ndcg": "ndcg nDCG ndcg_cut",
    "ndcg_burges": "ndcg_burges ndcg_exp",
    "mrr": "mrr rr recip_rank mrr_cut reciprocal_rank",
    "recall": "recall r",
    "precision": "precision p",
    "map": "map ap map_cut average_precision",
    "hit_rate": "hit_rate success hitrate hit hits accuracy acc",
    "r-precision": "r-precision r_precision rprec rprecision",
    "bpref": "bpref",
}
_KNOWN = {spelling.lower(): name for name, spellings in _NAMES.items() for spelling in spellings.split()}
_NO_CUT = ("r-precision", "bpref")
_GRADED = ("ndcg", "ndcg_burges")
_SHAPE = re.compile(
    r"(?P<name>[a-z][a-z_-]*?)"
    r"(?:\((?P<params>[^)]*)\))?"
    r"(?:(?:@|_at_|[_.])(?P<k>\d{1,9}))?"
    r"(?:-l(?P<level>\d{1,9}))?"
)


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric with its parameters; `str` gives its one spelling, such as `ndcg@10` or `mrr@10-l2`.

    Attributes:
        name: ndcg (linear gain), ndcg_burges (exponential), mrr, recall, precision, map, hit_rate, r-precision, bpref.
        k: The cut-off in hits; 0: none.
        level: The smallest grade that counts as relevant. nDCG takes grades below it as 0.
    """

    name: str
    k: int = 0
    level: int = 1

    def __str__(self) -> str:
        cut = f"@{self.k}" if self.k else ""
        level = f"-l{self.level}" if self.level != 1 else ""
        return f"{self.name}{cut}{level}"


def parse_measure(text: str, level: int = 1) -> Measure:
    """Read one name in any common spelling.

    Args:
        text: Such as `ndcg@10`, `nDCG@10`, `ndcg_cut_10`, `P(rel=2)@10`, `recip_rank`, `mrr@10-l2`.
        level: The smallest relevant grade where the name does not say; nDCG goes by grades and has it only by name.

    Raises:
        ConfigError: No such metric, or parameters it does not have.
    """
    shape = _SHAPE.fullmatch(text.strip().lower())
    if shape is None or shape["name"] not in _KNOWN:
        near = get_close_matches(re.split(r"[@_.(]", text.lower())[0], _KNOWN, 1)
        hint = f" (did you mean {_KNOWN[near[0]]}?)" if near else ""
        known = ", ".join(_NAMES)
        raise ConfigError(f"no metric {text!r}{hint}; expected one of {known}, with a cut-off such as ndcg@10")
    name = _KNOWN[shape["name"]]
    measure = Measure(name, int(shape["k"] or 0), int(shape["level"] or (1 if name in _GRADED else level)))
    for param in filter(None, (part.strip() for part in (shape["params"] or "").split(","))):
        measure = _with_param(measure, param, text)
    if shape["k"] is not None and measure.k < 1:
        raise ConfigError(f"metric {text!r}: a cut-off is at least 1")
    if measure.level < 1:
        raise ConfigError(f"metric {text!r}: the smallest relevant grade is at least 1")
    if measure.k and measure.name in _NO_CUT:
        raise ConfigError(f"metric {text!r}: {measure.name} has no cut-off")
    if measure.name == "precision" and not measure.k:
        raise ConfigError(f"metric {text!r}: precision needs a cut-off, such as precision@10")
    return measure


def parse_measures(given: str | Iterable[str | Measure], level: int = 1) -> tuple[Measure, ...]:
    """Read names, also several in one text with commas or blanks between; each is taken once, measures as they are.

    Raises:
        ConfigError: As `parse_measure`, or none is given.
    """
    measures: list[Measure] = []
    for item in [given] if isinstance(given, str) else given:
        if isinstance(item, Measure):
            measures.append(item)
        else:
            names = re.split(r"[,\s]+(?![^()]*\))", item.strip())
            measures += [parse_measure(name, level) for name in names if name]
    if not measures:
        raise ConfigError("no metric given; expected one such as ndcg@10")
    return tuple(dict.fromkeys(measures))


def _with_param(measure: Measure, param: str, text: str) -> Measure:
    """Apply a parameter in ir_measures' notation."""
    key, _, value = param.partition("=")
    value = value.strip("'\" ")
    if key.strip() == "rel" and value.isdecimal() and measure.name not in _GRADED:
        return replace(measure, level=int(value))
    if key.strip() == "dcg" and measure.name in _GRADED and value in ("log2", "exp-log2"):
        return replace(measure, name="ndcg" if value == "log2" else "ndcg_burges")
    raise ConfigError(f"metric {text!r}: {param!r} is not a parameter that is known here")
