"""The layouts in which a record holds an example; the names of its fields tell them apart.

| layout | fields |
|---|---|
| ours | `query, positives, negatives, query_id, positive_ids, negative_ids, positive_scores, negative_scores`; `positive` and `negative` (`positive_id`, `positive_score`, ...) for a single text |
| sentence-transformers | `anchor` or `query, positive, negative` or `negative_1 ... negative_n`; `scores` (or `score`) of all texts, positives first; pairs with a `label` of 0 or 1; `docs` with `labels` |
| Tevatron | `query_id, query, positive_passages, negative_passages` (objects `{docid, title, text}`), or `positive_document_ids, negative_document_ids` |
| FlagEmbedding | `query, pos, neg, pos_scores, neg_scores` |

Ids alone are enough in every layout where the documents' texts are given. A field that is null counts as absent.
"""  # noqa: E501 - rows of a table

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from retrieval.chunking import is_blank, joined
from retrieval.errors import DataError
from retrieval.lines import is_encodable, shown
from retrieval.ratings import QUERY_NAMES
from retrieval.training.examples import Example

_QUERIES = ("query", "anchor", "query_text")
_TOGETHER = ("scores", "score")  # of positives and negatives in one list
_LABEL, _DOCUMENTS, _LABELS = "label", "docs", "labels"
_LARGEST = sys.float_info.max
EXPECTED = (
    "expected query (or anchor) and positives (or positive, pos, positive_passages, positive_document_ids); "
    "negatives, ids and scores may follow"
)


@dataclass(frozen=True, slots=True)
class _Side:
    """How the fields of the positives, or of the negatives, are called."""

    name: str
    single: re.Pattern[str]
    lists: tuple[str, ...]
    passages: str
    ids: tuple[str, ...]
    scores: tuple[str, ...]


def _side(name: str, short: str) -> _Side:
    return _Side(
        name=f"{name}s",
        single=re.compile(rf"{name}(_\d+)?", re.ASCII),
        lists=(f"{name}s", short),
        passages=f"{name}_passages",
        ids=(f"{name}_ids", f"{name}_document_ids", f"{name}_id"),
        scores=(f"{name}_scores", f"{short}_scores", f"{name}_score"),
    )


_POSITIVES, _NEGATIVES = _side("positive", "pos"), _side("negative", "neg")


@dataclass(frozen=True, slots=True)
class _Texts:
    """The texts of one side, with what the record says about each."""

    texts: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()


class Record:
    """A record that is being read: fields are taken one by one, and those left over are known.

    Attributes:
        where: file and line, for messages.
        taken: names of the fields that were read.
    """

    def __init__(self, fields: Mapping[str, Any], where: str, documents: Mapping[str, str] | None) -> None:
        self.fields = {name: value for name, value in fields.items() if value is not None}
        self.where = where
        self.taken: set[str] = set()
        self._documents = documents

    @property
    def is_labelled(self) -> bool:
        """Whether it is one text of a query, or several, of which a label says which answer it."""
        return _LABEL in self.fields or _LABELS in self.fields

    def example(self) -> Example:
        """Read the record; only a labelled one may come without positives.

        Raises:
            DataError: something that cannot be used; names the place and the field.
        """
        query_key = self._one_of(_QUERIES)
        id_key = self._one_of(QUERY_NAMES)
        if query_key is None:
            raise self._error(f"no query; keys found: {self._found()}; {EXPECTED}")
        query = _text(self.fields[query_key], f"{self.where}: {query_key!r}")
        query_id = "" if id_key is None else self._id(self.fields[id_key], id_key)
        positives, negatives = self._labelled() if self.is_labelled else self._sides()
        if not positives.texts and not self.is_labelled:
            raise self._error(f"no positives; keys found: {self._found()}; {EXPECTED}")
        return Example(
            query=query,
            query_id=query_id,
            positives=positives.texts,
            positive_ids=positives.ids,
            positive_scores=positives.scores,
            negatives=negatives.texts,
            negative_ids=negatives.ids,
            negative_scores=negatives.scores,
        )

    def _sides(self) -> tuple[_Texts, _Texts]:
        positives, negatives = self._texts(_POSITIVES), self._texts(_NEGATIVES)
        key = self._one_of(_TOGETHER)
        if key is None:
            return positives, negatives
        if positives.scores or negatives.scores:
            raise self._error(f"{key!r} beside scores of the positives or negatives; keep one of them")
        count = len(positives.texts)
        scores = self._scores(key, count + len(negatives.texts))
        return (
            _Texts(positives.texts, positives.ids, scores[:count]),
            _Texts(negatives.texts, negatives.ids, scores[count:]),
        )

    def _texts(self, side: _Side) -> _Texts:
        """Read the texts of one side, from whichever field has them."""
        singles = sorted(filter(side.single.fullmatch, self.fields), key=_number)
        self.taken.update(singles)
        key = self._one_of((*side.lists, side.passages))
        ids = self._ids(side)
        if key is not None and singles:
            raise self._error(f"both {singles[0]!r} and {key!r}; keep one of them")
        if singles:
            texts = tuple(_text(self.fields[name], f"{self.where}: {name!r}") for name in singles)
        elif key == side.passages:
            texts, own = self._passages(key)
            ids = ids or own
        elif key is not None:
            texts = tuple(
                _text(text, f"{self.where}: {key!r}, text {number}")
                for number, text in enumerate(self._list(key, "texts"), 1)
            )
        else:
            texts = tuple(map(self._document, ids))
        if ids and len(ids) != len(texts):
            raise self._error(f"{len(ids)} ids for {len(texts)} {side.name}; expected one for each")
        scores_key = self._one_of(side.scores)
        return _Texts(texts, ids, () if scores_key is None else self._scores(scores_key, len(texts)))

    def _labelled(self) -> tuple[_Texts, _Texts]:
        """Tell positives from negatives by labels of 0 and 1."""
        if _LABELS in self.fields:
            self.taken.update((_DOCUMENTS, _LABELS))
            if _DOCUMENTS not in self.fields:
                raise self._error(f"{_LABELS!r} without {_DOCUMENTS!r}; keys found: {self._found()}")
            texts = self._list(_DOCUMENTS, "texts")
            labels, key = self._list(_LABELS, "labels of 0 and 1"), _LABELS
            if len(labels) != len(texts):
                raise self._error(f"{len(labels)} labels for {len(texts)} {_DOCUMENTS}; expected one for each")
        else:
            text_key = self._one_of(("positive", "passage", "document", "text"))
            if text_key is None:
                raise self._error(f"{_LABEL!r} without 'positive' (or passage); keys found: {self._found()}")
            texts, labels, key = [self.fields[text_key]], [self.fields[_LABEL]], _LABEL
            self.taken.add(_LABEL)
        if bad := [label for label in labels if label not in (0, 1)]:
            raise self._error(f"{key!r} is {bad[0]!r:.40}; expected 0 or 1 (a graded number goes into 'score')")
        checked = [_text(text, f"{self.where}: text {number}") for number, text in enumerate(texts, 1)]
        pairs = list(zip(checked, labels, strict=True))
        return (
            _Texts(tuple(text for text, label in pairs if label)),
            _Texts(tuple(text for text, label in pairs if not label)),
        )

    def _passages(self, key: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        texts, ids = [], []
        for number, passage in enumerate(self._list(key, "objects {docid, title, text}"), 1):
            where = f"{self.where}: {key!r}, passage {number}"
            if not isinstance(passage, dict) or "text" not in passage:
                raise DataError(f"{where} is {passage!r:.60}; expected an object {{docid, title, text}}")
            title = passage.get("title") or ""
            if not isinstance(title, str):
                raise DataError(f"{where}: the title is {title!r:.40}; expected a string")
            if not isinstance(passage["text"], str):
                raise DataError(f"{where}: the text is {passage['text']!r:.40}; expected a string")
            texts.append(_text(joined(title, passage["text"]), where))
            if passage.get("docid") is not None:
                ids.append(self._id(passage["docid"], f"{key}, passage {number}: docid"))
        if ids and len(ids) != len(texts):
            raise self._error(f"{key!r}: {len(ids)} of {len(texts)} passages have a docid; expected all or none")
        return tuple(texts), tuple(ids)

    def _ids(self, side: _Side) -> tuple[str, ...]:
        key = self._one_of(side.ids)
        if key is None:
            return ()
        given = self.fields[key]
        values = self._list(key, "ids") if key.endswith("s") else [given]
        return tuple(self._id(value, key) for value in values)

    def _id(self, value: object, key: str) -> str:
        if type(value) is int or (type(value) is str and value and is_encodable(value)):
            return str(value)
        raise self._error(f"{key!r} is {value!r:.40}; expected an id, a string or an integer")

    def _document(self, doc_id: str) -> str:
        if self._documents is None:
            raise self._error("ids without texts; give the documents' texts (texts=...) to look them up")
        if doc_id not in self._documents:
            raise self._error(f"no document {doc_id!r} among the {len(self._documents):,} that were given")
        return _text(self._documents[doc_id], f"{self.where}: document {doc_id!r}")

    def _scores(self, key: str, count: int) -> tuple[float, ...]:
        given = self.fields[key]
        values = given if isinstance(given, list) else [given]
        if len(values) != count:
            raise self._error(f"{key!r}: {len(values)} scores for {count} texts; expected one for each")
        for value in values:
            if type(value) not in (int, float) or not abs(value) <= _LARGEST:
                raise self._error(f"{key!r} holds {value!r:.40}; expected finite numbers")
        return tuple(map(float, values))

    def _list(self, key: str, what: str) -> list[Any]:
        value = self.fields[key]
        if isinstance(value, list):
            return value
        remedy = f"; put it into brackets: [{value!r:.40}]" if isinstance(value, str) else ""
        raise self._error(f"{key!r} is {value!r:.40}; expected a list of {what}{remedy}")

    def _one_of(self, names: Sequence[str]) -> str | None:
        there = [name for name in names if name in self.fields]
        if len(there) > 1:
            raise self._error(f"both {there[0]!r} and {there[1]!r}; keep one of them")
        self.taken.update(there)
        return there[0] if there else None

    def _found(self) -> str:
        return shown(", ".join(shown(str(name)) for name in self.fields) or "none", 300)

    def _error(self, what: str) -> DataError:
        return DataError(f"{self.where}: {what}")


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{where} is {value!r:.40}; expected a text (a string)")
    if not value.isascii() and not is_encodable(value):
        raise DataError(f"{where} holds half a surrogate pair, not a character")
    if is_blank(value):
        raise DataError(f"{where} is blank; expected a text")
    return value


def _number(name: str) -> tuple[int, str]:
    """Order names by the number at their end, of any length; those without one come first."""
    digits = name.rpartition("_")[2].lstrip("0") if name[-1].isdigit() else ""
    return (len(digits), digits) if name[-1].isdigit() else (-1, "")
