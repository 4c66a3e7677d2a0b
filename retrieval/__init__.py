"""Two-stage retrieval on your own corpora."""

from retrieval.errors import RetrievalError

__version__ = "0.1.0"
__all__ = ["RetrievalError", "__version__"]
