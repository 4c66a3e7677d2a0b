"""What one would write with other tools: index a corpus, answer queries. Each run is a whole program.

    python tests/benchmarks/peers.py build TOOL CORPUS MODEL INDEX
    python tests/benchmarks/peers.py query TOOL INDEX MODEL TEXT...

TOOL is sentence-transformers, langchain or txtai; the first two search with FAISS. CORPUS is JSONL with _id, title and
text; MODEL a folder. All have their own defaults, but run on the CPU and keep the texts. `query` prints a line of JSON
for each text: score by id, best first, ten of them. Install them with: pip install -e ".[peers]"
"""

import importlib.metadata
import importlib.util
import json
import sys
from pathlib import Path

K = 10
MODULES = {
    "sentence-transformers": ("sentence_transformers", "faiss"),
    "langchain": ("langchain_huggingface", "langchain_community", "faiss"),
    "txtai": ("txtai", "faiss"),
}
Hits = list[dict[str, float]]  # score by id, for each query


def missing(tool: str) -> list[str]:
    """The modules that a tool needs and that are not installed."""
    return [module for module in MODULES[tool] if importlib.util.find_spec(module) is None]


def version(tool: str) -> str:
    return importlib.metadata.version("langchain-community" if tool == "langchain" else tool)


def read_corpus(path: str) -> tuple[list[str], list[str]]:
    """Ids, and texts with the titles before them."""
    with Path(path).open(encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return [one["_id"] for one in records], [f"{one.get('title', '')} {one['text']}".strip() for one in records]


def build_sentence_transformers(corpus: str, model: str, index: str) -> None:
    import faiss
    from sentence_transformers import SentenceTransformer

    ids, texts = read_corpus(corpus)
    vectors = SentenceTransformer(model, device="cpu").encode(texts)
    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(vectors)
    Path(index).mkdir()
    faiss.write_index(flat, f"{index}/vectors.faiss")
    Path(index, "texts.json").write_text(json.dumps([ids, texts]))


def query_sentence_transformers(index: str, model: str, queries: list[str]) -> Hits:
    import faiss
    from sentence_transformers import SentenceTransformer

    flat = faiss.read_index(f"{index}/vectors.faiss")
    ids, _ = json.loads(Path(index, "texts.json").read_text())
    scores, rows = flat.search(SentenceTransformer(model, device="cpu").encode(queries), min(K, len(ids)))
    return [
        {ids[row]: float(score) for row, score in zip(*found, strict=True)} for found in zip(rows, scores, strict=True)
    ]


def build_langchain(corpus: str, model: str, index: str) -> None:
    from langchain_community.vectorstores import FAISS
    from langchain_huggingface import HuggingFaceEmbeddings

    ids, texts = read_corpus(corpus)
    embeddings = HuggingFaceEmbeddings(model_name=model, model_kwargs={"device": "cpu"})
    FAISS.from_texts(texts, embeddings, [{"id": one} for one in ids]).save_local(index)


def query_langchain(index: str, model: str, queries: list[str]) -> Hits:
    from langchain_community.vectorstores import FAISS
    from langchain_huggingface import HuggingFaceEmbeddings

    embeddings = HuggingFaceEmbeddings(model_name=model, model_kwargs={"device": "cpu"})
    store = FAISS.load_local(index, embeddings, allow_dangerous_deserialization=True)
    found = [store.similarity_search_with_score(query, K) for query in queries]
    return [{hit.metadata["id"]: -float(distance) for hit, distance in hits} for hits in found]


def build_txtai(corpus: str, model: str, index: str) -> None:
    from txtai import Embeddings

    embeddings = Embeddings(path=model, gpu=False, content=True)
    embeddings.index(zip(*read_corpus(corpus), strict=True))
    embeddings.save(index)


def query_txtai(index: str, model: str, queries: list[str]) -> Hits:
    from txtai import Embeddings

    embeddings = Embeddings()
    embeddings.load(index)
    return [{hit["id"]: hit["score"] for hit in hits} for hits in embeddings.batchsearch(queries, K)]


def main() -> None:
    action, tool, *given = sys.argv[1:]
    function = globals()[f"{action}_{tool.replace('-', '_')}"]
    if action == "build":
        function(*given)
    else:
        index, model, *queries = given
        for hits in function(index, model, queries):
            print(json.dumps(hits))


if __name__ == "__main__":
    main()
