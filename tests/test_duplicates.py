"""The set of hashes, against Python's own."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from retrieval.duplicates import KnownIds, SeenHashes, id_hashes


@given(st.lists(st.lists(st.integers(-5, 60), max_size=8), max_size=20))
def test_seen_hashes_equal_a_set(batches):
    seen, oracle = SeenHashes(), set()
    for batch in batches:
        hashes = np.array(batch, dtype=np.int64)
        assert seen.contains(hashes).tolist() == [value in oracle for value in batch]
        seen.add(hashes)
        oracle.update(batch)


def test_a_million_ids_take_eight_bytes_each_in_few_arrays():
    seen = SeenHashes()
    for start in range(0, 1_000_000, 1000):
        seen.add(np.arange(start, start + 1000, dtype=np.int64) * 7_919)
    assert sum(level.nbytes for level in seen._levels) == 8_000_000
    assert len(seen._levels) <= 12


def test_ids_of_an_index_are_found_by_the_ids_not_by_the_hash(monkeypatch):
    monkeypatch.setattr("retrieval.duplicates.id_hashes", lambda ids: np.array([len(i) for i in ids], dtype=np.int64))
    known = KnownIds()
    known.add(pa.chunked_array([["a", "b", "b"], ["ccc"]]))
    known.add(pa.array(["dd"]))
    ids = ["a", "x", "cc", "dd", "ccc", "eeee"]
    assert known.find(ids, np.array([len(i) for i in ids], dtype=np.int64)) == {"a", "dd", "ccc"}


def test_equal_ids_have_equal_hashes():
    assert id_hashes(["a", "b", "".join(["a"])]).tolist()[::2] == [hash("a")] * 2
