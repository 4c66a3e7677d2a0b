"""The errors of the library, as one tree.

RetrievalError
├── ConfigError (ValueError)          a setting that cannot be used
├── DataError (ValueError)            an input file or record that cannot be used
├── ModelError (ValueError)           a model that cannot be found, loaded or trusted
├── IndexFormatError (ValueError)     an index directory that is none, is damaged or is too new
├── IndexMismatchError (ValueError)   an index that was made with another model
├── IndexLockedError                  another process is writing to the index
└── MissingDependencyError (ImportError)   an optional package is not installed

A message says what was given, what was expected, where (file, line) and what to do.
"""


class RetrievalError(Exception):
    """Base of every error that this library raises on purpose."""


class ConfigError(RetrievalError, ValueError):
    """A setting that cannot be used."""


class DataError(RetrievalError, ValueError):
    """An input file or record that cannot be used."""


class ModelError(RetrievalError, ValueError):
    """A model that cannot be found, loaded or trusted."""


class IndexFormatError(RetrievalError, ValueError):
    """An index directory that is none, is damaged or was written by a newer release."""


class IndexMismatchError(RetrievalError, ValueError):
    """An index that was made with another model than the one given."""


class IndexLockedError(RetrievalError):
    """Another process is writing to the index."""


class MissingDependencyError(RetrievalError, ImportError):
    """An optional package that the call needs is not installed."""
