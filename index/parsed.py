"""What JSON says of a dataclass, checked against the types of its fields."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

_EXPECTED: dict[Any, str] = {int: "a count", float: "a number from 0 to 1", str: "a text", bool: "true or false"}


def parsed(kind: Any, value: Any, name: str = "") -> Any:
    """Make a value of a type from what `asdict` and JSON left of it.

    Integers count something here, and floats are shares: none is negative, and no share is above 1.

    Args:
        kind: A dataclass; or what the type of a field is, of JSON's own types, `list`, `dict`, `Literal` and `| None`.
        value: Out of JSON.
        name: What messages call it; "" for the whole.

    Raises:
        ValueError: Another type, a number out of range, a field that is missing or not known; or the dataclass's own.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, UnionType):
        if value is None and NoneType in arguments:
            return None
        (kind,) = (one for one in arguments if one is not NoneType)
        return parsed(kind, value, name)
    if is_dataclass(kind) and isinstance(value, dict):
        return _with_fields(kind, value, name)
    if origin is list and isinstance(value, list):
        return [parsed(arguments[0], one, f"{name}[{number}]") for number, one in enumerate(value)]
    if origin is dict and isinstance(value, dict):
        return {key: parsed(arguments[1], one, f"{name}[{key!r:.60}]") for key, one in value.items()}
    if origin is Literal and value in arguments:
        return value
    if kind is float and type(value) in (int, float) and 0 <= value <= 1:
        return float(value)
    if kind is not float and type(value) is kind and (kind is not int or value >= 0):
        return value
    options = " or ".join(arguments) if origin is Literal else "a list" if origin is list else "an object"
    raise ValueError(f"{name or 'all of it'} is {value!r:.60}, expected {_EXPECTED.get(kind, options)}")


def _with_fields(kind: Any, entries: dict[str, Any], name: str) -> Any:
    """Make a dataclass; a field that has a default may be missing: an older release did not know it."""
    where = f"{name}." if name else ""
    types = get_type_hints(kind)
    if unknown := entries.keys() - types.keys():
        raise ValueError(f"{where}{min(unknown)!r:.60} is not known")
    for one in fields(kind):
        if one.name not in entries and one.default is MISSING and one.default_factory is MISSING:
            raise ValueError(f"{where}{one.name} is missing")
    values = {one: parsed(types[one], entry, f"{where}{one}") for one, entry in entries.items()}
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(f"{name}: {error}" if name else str(error)) from error
