"""What a field of a record may hold, and canonical JSON: the checks that every way in shares.

A record enters by a call, from a database row or from a line of JSON, and is checked by the same
functions each time, so that a stored row never surprises a reader. Each check takes the field's name
and value, returns the value in its normal form, and raises DatabaseError saying what is wrong.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import numbers
import re
from typing import Any

from autotune.errors import DatabaseError

MAX_KEY = 128
MAX_MESSAGE = 4096
MAX_SHOWN = 60
FIGURES = 4
"""Of numbers that describe a time: digits that mean nothing are half of what millions of rows take."""
_KEY = re.compile(r"[!-~]+\Z")
_KIND = re.compile(r"[a-z][a-z0-9_]*\Z")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def parse_json(text: str) -> Any:
    """The value of JSON text; ValueError for anything else, NaN and Infinity too."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


class Canonical(str):
    """JSON text known to be in canonical form: a check gives it back as it is, a plain string, unparsed."""

    __slots__ = ()


def dump_json(value: object) -> Canonical:
    """Canonical JSON: sorted keys, no spaces, ASCII; ValueError for NaN and infinity."""
    return Canonical(json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False))


def rounded(value: float | None) -> float | None:
    """A number that describes a time (its spread, its errors, what was expected), in digits that mean something."""
    return None if value is None else float(f"{value:.{FIGURES}g}")


def embed(text: str) -> object:
    """JSON text as a value inside other JSON: what it says, or itself, as a string, where strict JSON has no word.

    Attributes of operators may be infinite (clip without a bound), and Python writes that as Infinity.
    """
    try:
        value = parse_json(text)
    except ValueError:
        return text
    return text if isinstance(value, str) else value


def unembed(value: object) -> str:
    """The JSON text that `embed` was given, from a parsed value."""
    try:
        return value if isinstance(value, str) else dump_json(value)
    except RecursionError:
        raise DatabaseError("JSON nested too deeply") from None
    except ValueError as error:  # such as 1e999
        raise DatabaseError(str(error)) from None


def _canonical(text: str) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


# Thousands of rows share one workload, target and interface: parse each of those texts once.
_canonical_shared = functools.lru_cache(maxsize=4096)(_canonical)


def text_key(text: str) -> str:
    """16 hex digits of the SHA-256 of `text`: the one rule for keys."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise DatabaseError(f"{name} must be a string, got {shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DatabaseError(f"{name} cannot be stored as UTF-8: {shown(value)}") from None
    return value


def key(name: str, value: object) -> str:
    """A short printable name without spaces: a hash, a template, a session id."""
    if not isinstance(value, str) or len(value) > MAX_KEY or not _KEY.match(value):
        raise DatabaseError(f"{name} must be 1 to {MAX_KEY} printable characters without spaces, got {shown(value)}")
    return value


def optional_key(name: str, value: object) -> str | None:
    return None if value is None else key(name, value)


def short_name(name: str, value: object) -> str:
    """A key that may be empty, meaning unknown."""
    return "" if value == "" else key(name, value)


def failure_kind(name: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > MAX_KEY or not _KIND.match(value):
        raise DatabaseError(f"{name} must be one lower-case word such as 'timeout', got {shown(value)}")
    return value


def message(name: str, value: object) -> str | None:
    """Free text from compilers and crashes: cut and cleaned instead of refused, a trial must not be lost by it."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise DatabaseError(f"{name} must be a string, got {shown(value)}")
    return value[:MAX_MESSAGE].encode("utf-8", "replace").decode()


def shared_json(name: str, value: object) -> str:
    """JSON text that many rows repeat, in canonical form."""
    return _checked_json(name, value, _canonical_shared)


def own_json(name: str, value: object) -> str:
    """JSON text that one row has to itself, in canonical form."""
    return _checked_json(name, value, _canonical)


def optional_json(name: str, value: object) -> str | None:
    """As `own_json`; None and the JSON null are the same nothing."""
    checked = "null" if value is None else own_json(name, value)
    return None if checked == "null" else checked


def _checked_json(name: str, value: object, canonical: Any) -> str:
    if isinstance(value, Canonical):
        return str(value)
    if not isinstance(value, str):
        raise DatabaseError(f"{name} must be JSON text, got {shown(value)}")
    try:
        return str(canonical(value))
    except ValueError as error:
        raise DatabaseError(f"{name} must be JSON text, got {shown(value)}: {error}") from None


def number(name: str, value: object) -> float:
    """A finite float."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise DatabaseError(f"{name} must be a number, got {shown(value)}")
    try:
        real = float(value)
    except OverflowError:
        real = math.inf
    if not math.isfinite(real):
        raise DatabaseError(f"{name} must be finite, got {shown(value)}")
    return real


def optional_number(name: str, value: object) -> float | None:
    return None if value is None else number(name, value)


def non_negative(name: str, value: object) -> float | None:
    """A finite float >= 0, or None."""
    real = optional_number(name, value)
    if real is not None and real < 0:
        raise DatabaseError(f"{name} must not be negative, got {shown(value)}")
    return real


def positive(name: str, value: object) -> float | None:
    """A finite float > 0, or None."""
    real = optional_number(name, value)
    if real is not None and real <= 0:
        raise DatabaseError(f"{name} must be greater than 0, got {shown(value)}")
    return real


def error_size(name: str, value: object) -> float | None:
    """An error found by verification: >= 0, where inf is a fact (the output overflowed, or was NaN), or None."""
    if isinstance(value, float) and (math.isnan(value) or value == math.inf):
        return math.inf
    return non_negative(name, value)


def optional_count(name: str, value: object) -> int | None:
    """An integer from 1 to 2**63 - 1, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not 1 <= int(value) < 2**63:
        raise DatabaseError(f"{name} must be a positive integer, got {shown(value)}")
    return int(value)


def count(name: str, value: object) -> int:
    """An integer from 0 to 2**63 - 1."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not 0 <= int(value) < 2**63:
        raise DatabaseError(f"{name} must be a whole number, not negative, got {shown(value)}")
    return int(value)


def flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise DatabaseError(f"{name} must be True or False, got {shown(value)}")
    return value


def shown(value: object) -> str:
    """A value for a message, in quotes where it is text: a foreign file may hold a megabyte of it."""
    return shortened(repr(value))


def shortened(text: str) -> str:
    """Text for a message: no more than fits a line of it."""
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
