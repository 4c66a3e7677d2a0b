"""Examples to train with: a query, texts that answer it, and texts that do not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """A query with texts that answer it and texts that do not.

    Attributes:
        query: what is asked, without a model's prompt.
        positives: texts that answer it, at least one, each as the encoder reads it (title and text joined).
        negatives: texts that do not.
        query_id: of the query; empty where it is not known.
        positive_ids: of the positives, one each; empty where they are not known.
        negative_ids: of the negatives, one each; empty where they are not known.
        positive_scores: a teacher's scores or grades, one for each positive; empty where there are none.
        negative_scores: the same for the negatives.
    """

    query: str
    positives: tuple[str, ...]
    negatives: tuple[str, ...] = ()
    query_id: str = ""
    positive_ids: tuple[str, ...] = ()
    negative_ids: tuple[str, ...] = ()
    positive_scores: tuple[float, ...] = ()
    negative_scores: tuple[float, ...] = ()
