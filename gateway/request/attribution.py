"""Which application calls, in its own words: nothing is decided by it, it only helps to find a generation again."""

from gateway.wire.header_fields import Fields

LONGEST = 200  # characters


def calling_app(fields: Fields) -> str | None:
    """The application a request names: its title (`X-Title`) or, without one, its address (`HTTP-Referer`).

    An address is kept without query and fragment, which may say who sits in front of the application. None when nothing
    is said.
    """
    title, address = fields.get(b"x-title"), fields.get(b"http-referer")
    if title and (shown := _text(title)):
        return shown
    return _text(address.partition(b"#")[0].partition(b"?")[0]) or None if address else None


def _text(value: bytes) -> str:
    """A header's value in what can be shown and stored. It is UTF-8 in practice, whatever RFC 9110, 5.5 says."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = value.decode("latin-1")
    return "".join(filter(str.isprintable, text)).strip()[:LONGEST].rstrip()
