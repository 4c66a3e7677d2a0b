"""The index on disk: segments of vectors and documents, one manifest that commits them."""
