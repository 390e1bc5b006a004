"""Sizes as people write them."""

import re

from .errors import InvalidError

_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _UNITS[_letter + "ib"] = 1024**_power
    _UNITS[_letter + "b"] = 1000**_power


def to_bytes(size, name):
    """`size` in bytes: a number, or a text such as "8GiB", "500 MB"."""
    if isinstance(size, bool) or not isinstance(size, (int, str)):
        raise InvalidError(f"{name} is {size!r}; it must be a number of bytes or a text such as '8GiB'")
    if isinstance(size, int):
        if size < 0:
            raise InvalidError(f"{name} is {size}; it must be at least 0")
        return size
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", size)
    unit = match and _UNITS.get(match[2].lower())
    if not unit:
        raise InvalidError(f"{name} is {size!r}; write it as '8GiB', '500MB' or a number of bytes")
    return int(float(match[1]) * unit)
