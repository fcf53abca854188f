"""A request's header fields by name, as they came: names in lower case, values in bytes."""

from collections.abc import Mapping, Sequence

Fields = Mapping[bytes, bytes]
NO_FIELDS: Fields = {}


def by_name(lines: Sequence[tuple[bytes, bytes]]) -> Fields:
    """The fields of these lines of a head; lines of one name are one list, split by commas (RFC 9110, 5.3)."""
    found = dict(lines)
    if len(found) < len(lines):
        found = {}
        for name, value in lines:
            found[name] = found[name] + b"," + value if name in found else value
    return found
