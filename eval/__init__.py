"""Evaluation of runs (the next releases fill this package)."""
