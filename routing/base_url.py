"""The one grammar of base URLs: how an address that somebody typed is read, when it is saved and when it is dialled.

A provider's base URL, a webhook or an export target is such a text, and nothing else ever parses it: a guard that reads
a URL one way and a client that reads it another way is how such guards are passed. What is not plainly a URL is
refused, not repaired. Where it leads is judged elsewhere (`routing/egress.py`).

No I/O here, and no framework.
"""

import ipaddress
import re
from dataclasses import dataclass
from functools import lru_cache

Endpoint = tuple[str, str, int]  # scheme, host as `BaseUrl.host` writes it, port

MAX_URL = 2048
MAX_HOST = 253  # RFC 1035, 2.3.4, less the root label
MAX_SEGMENT = 256
DEFAULT_PORTS = {"http": 80, "https": 443}

# RFC 3986 `pchar`, less percent-encoding, quotes, parentheses, `&`, `*` and `;`: a segment is sent as it is
# written, so no server can decode one thing where the guard saw another (`%2e%2e`, `..;`).
_PCHAR = r"[A-Za-z0-9._~:@$+=,-]"
_SEGMENT = rf"(?!\.+(?:[/?]|\Z)){_PCHAR}+"  # A segment of dots alone is a step up, in somebody's parser.
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_BASE = re.compile(
    rf"(?P<scheme>https?)://(?:\[(?P<v6>[0-9A-Fa-f:.]{{2,45}})\]|(?P<name>{_LABEL}(?:\.{_LABEL})*))"
    rf"(?::(?P<port>[1-9][0-9]{{0,4}}))?(?P<path>(?:/{_SEGMENT})*)/?"
)
_ONE_SEGMENT = re.compile(_SEGMENT)
# In the path of a dial a provider's own name may stand encoded, as its API wants it (a Bedrock ARN has a slash). Not
# encoded are a dot, a backslash, a percent sign and control characters, by which a server might be led elsewhere.
_ENCODED = r"%(?!2E|5C|25|7F)[2-9A-F][0-9A-F]"
_STEP = rf"(?!\.+(?:/|%2F|\?|\Z))(?:{_PCHAR}|(?!%2F){_ENCODED})+"
_TARGET = re.compile(rf"/{_STEP}(?:(?:/|%2F){_STEP})*(?:\?[A-Za-z0-9._~:@$+=,&-]*)?")
# A host whose last label is a number, in any base, is an IPv4 address to some parser ("127.1", "0x7f.1",
# "0177.1").
_ENDS_IN_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0[xX][0-9A-Fa-f]*)")
_QUAD = re.compile(r"(?:(?:0|[1-9][0-9]{0,2})\.){3}(?:0|[1-9][0-9]{0,2})")


class BadUrl(ValueError):
    """The text is not a base URL, path or path segment of the grammar above."""


@dataclass(frozen=True, slots=True)
class BaseUrl:
    """A parsed base URL. `host` is lower case, IPv6 compressed and without brackets; `path` is "" or
    "/a/b".
    """

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def endpoint(self) -> Endpoint:
        """What the operator's list names, and what a connection is made to."""
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """Host and, unless it is the scheme's own, port: the value of the Host header (RFC 9110, 7.2)."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def is_address(self) -> bool:
        """Whether the host is an IP address instead of a name."""
        return ":" in self.host or _QUAD.fullmatch(self.host) is not None

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


def parse_base_url(text: str) -> BaseUrl:
    """The one reading of a base URL; a trailing slash is dropped.

    Raises `BadUrl` for all else: another scheme, userinfo, query, fragment, percent-encoding, backslash,
    white space, a non-ASCII letter, a dot segment, an empty segment, a trailing dot on the host, or an IPv4
    address in any form but four plain decimals. Names are not resolved and addresses not judged here: that
    is `routing.egress.Egress`.
    """
    found = _BASE.fullmatch(text) if len(text) <= MAX_URL else None
    if found is None:
        raise BadUrl("not a base URL: expected https://host[:port][/path] in plain ASCII")
    port = int(found["port"] or DEFAULT_PORTS[found["scheme"]])
    if port > 65535:
        raise BadUrl("not a port number")
    host = _v6(found["v6"]) if found["v6"] else _name_or_v4(found["name"])
    return BaseUrl(found["scheme"], host, port, found["path"])


def _v6(text: str) -> str:
    try:
        return ipaddress.IPv6Address(text).compressed
    except ValueError:
        raise BadUrl("not an IPv6 address") from None


def _name_or_v4(text: str) -> str:
    if len(text) > MAX_HOST:
        raise BadUrl("the host name is too long")
    if _ENDS_IN_NUMBER.fullmatch(text) and not (
        _QUAD.fullmatch(text) and all(int(part) < 256 for part in text.split("."))
    ):
        raise BadUrl("not an IPv4 address: four decimals without leading zeros")
    return text.lower()


def safe_segment(text: str) -> str:
    """`text` itself, fit to stand as one segment of an upstream path; raises `BadUrl` when it is not.

    For ids that arrive from outside, such as an upstream's name of a model. Nothing is encoded: a slash, a
    percent sign or a dot segment in an id would address something else, so it is refused.
    """
    if len(text) > MAX_SEGMENT or not _ONE_SEGMENT.fullmatch(text):
        raise BadUrl("not a path segment")
    return text


def versioned(path: str, api_version: str) -> str:
    """The path of a dial to a service whose query names the version of its API; empty: it does not."""
    return f"{path}{'&' if '?' in path else '?'}api-version={api_version}" if api_version else path


@lru_cache(maxsize=1024)
def request_target(prefix: str, path: str) -> str:
    """The request target of a dial: `prefix` (a `BaseUrl.path`) and `path`, which may end in a query.

    Raises `BadUrl` unless every segment is one that `parse_base_url` would take, but for what is encoded in it; an
    encoded slash parts segments as well as a plain one.
    """
    target = prefix + path
    if len(target) > MAX_URL or not path.startswith("/") or not _TARGET.fullmatch(target):
        raise BadUrl("not a request path")
    return target
