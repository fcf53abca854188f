"""Which application calls, in its own words: nothing is decided by it, it only helps to find a generation again."""

from collections.abc import Mapping

LONGEST = 200  # characters


def calling_app(meta: Mapping[str, str]) -> str | None:
    """The application a request names: its title (`X-Title`) or, without one, its address (`HTTP-Referer`).

    `meta` is a request's, as CGI and Django name headers. An address is kept without query and fragment, which may say
    who sits in front of the application. None when nothing is said.
    """
    title, address = meta.get("HTTP_X_TITLE"), meta.get("HTTP_HTTP_REFERER")
    if title and (shown := _text(title)):
        return shown
    return _text(address.partition("#")[0].partition("?")[0]) or None if address else None


def _text(value: str) -> str:
    """A header's value in what can be shown and stored. It is UTF-8 in practice, whatever RFC 9110, 5.5 says."""
    raw = value.encode("latin-1", "replace")
    try:
        value = raw.decode()
    except UnicodeDecodeError:
        value = raw.decode("latin-1")
    return "".join(filter(str.isprintable, value)).strip()[:LONGEST].rstrip()
