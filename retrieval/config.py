"""Settings of a run from a TOML file: one table for each command, options by their long names."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from retrieval.errors import ConfigError


def read_settings(path: str | Path) -> dict[str, dict[str, Any]]:
    """Read a settings file.

    Args:
        path: TOML such as `[build-index]` with `index-type = "hnsw"` below it.

    Returns:
        The tables, as written.

    Raises:
        ConfigError: No such file, or not a TOML file of tables.
    """
    try:
        body = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read as TOML: {error}") from error
    for name, table in body.items():
        if not isinstance(table, dict):
            raise ConfigError(
                f"{path}: {name} stands outside a table; write it below a command's, such as [build-index]"
            )
    return body
