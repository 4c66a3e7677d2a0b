"""Training of encoders and rerankers (the next releases fill this package)."""
