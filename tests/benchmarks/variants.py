"""Settings written as options: "--runtime openvino --dtype int8", for scripts that call the library."""

import shlex


def settings(options: str) -> dict[str, str | int]:
    """Keyword arguments of a settings class."""
    words = shlex.split(options)
    return {
        name.removeprefix("--").replace("-", "_"): int(value) if value.isdigit() else value
        for name, value in zip(words[::2], words[1::2], strict=True)
    }
