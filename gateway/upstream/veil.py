"""Hides a provider's secrets in whatever the provider says: those that belong to this dial, and no pattern.

An upstream that echoes its Authorization header would else tell it to a tenant, to a log or to the books. All bytes of
an answer pass here (`Reply`), and all words of a failure (`Attempt.failed`). The secret is found as it is; with any of
its characters escaped as JSON, URLs, HTML and programs escape them; and in base64 and hex, also amid more of either. Of
a long one, such as a token of a thousand characters, its end is looked for: where it is signed that is the signature. A
provider that means to tell it can tell it in a way that nobody reads: against that there is no veil.
"""

import re
from base64 import b64encode
from functools import lru_cache
from string import ascii_letters, digits
from typing import Protocol

from gateway.wire.sse import Event

HIDDEN = "[key]"
SIGN = 12  # characters that tell that a form may be there
SHORTEST = 8  # characters; a shorter secret is a placeholder such as "none", and a word of many an answer
# Characters; of a longer one so many at its end are looked for. To make that ready takes 1 ms a character.
LONGEST, END = 128, 64
_NAMED = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}  # by HTML
_PLAIN = re.compile(r"[A-Za-z0-9_.~-]+")  # what encoders escape only where they escape everything


class Veil:
    """What some secrets look like. `reach` is by how many bytes the longest form may be cut short at an end, `letters`
    are the bytes that any form is made of.
    """

    __slots__ = ("_bytes", "_signs", "_text", "letters", "reach")

    def __init__(self, *secrets: str) -> None:
        forms: list[str] = []
        alike: list[str] = []
        secrets = tuple(map(_end, secrets))
        for secret in secrets:
            coded = [secret.encode().hex(), *(_base64(secret, before) for before in range(3))]
            forms += ["".join(map(_character, secret)), f"(?i:{coded[0]})", *map(_in_base64, coded[1:])]
            # In the bytes of an answer a form is looked for only where a long part of it is: what encoders leave alone.
            alike += [max(_PLAIN.findall(secret), key=len, default=""), coded[0], coded[0].upper()]
            alike += map(_alike, coded[1:])
        pattern = "|".join(forms)
        self._text = re.compile(pattern)
        self._bytes = re.compile(pattern.encode())
        # Its end, since many keys begin alike; and no more of it, since a short one is found in fewer steps.
        self._signs = tuple(sign[-SIGN:].encode() for sign in alike)
        self.reach = 9 * max(map(len, secrets))  # as `\\\u0073`
        self.letters = ("".join(secrets) + ascii_letters + digits + "+/-_\\%&#;").encode()

    def over(self, text: str) -> str:
        """The text without the secrets."""
        return self._text.sub(HIDDEN, text)

    def over_bytes(self, data: bytes) -> bytes:
        """The bytes without the secrets. Nearly all have no sign of them, and are the same object."""
        return self._bytes.sub(HIDDEN.encode(), data) if any(map(data.count, self._signs)) else data


class Veiled:
    """One answer's bytes as they come, cut anywhere: what may yet become the secret waits for what follows.

    No form of a secret goes over a blank, a brace or the end of a line, and an event ends with one: of a stream nothing
    waits, and of the beginning of a body so little that it is seen to have begun.
    """

    __slots__ = ("_held", "_veil")

    def __init__(self, veil: Veil) -> None:
        self._veil = veil
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What is sure of the bytes so far."""
        veil = self._veil
        data = veil.over_bytes(self._held + data if self._held else data)
        sure = len(data.rstrip(veil.letters))
        if sure == len(data):  # as most pieces end
            self._held = b""
            return data
        sure = max(len(data) - veil.reach, sure)
        self._held = data[sure:]
        return data[:sure]

    def end(self) -> bytes:
        """What waits, when nothing follows."""
        held, self._held = self._held, b""
        return held


class Events(Protocol):
    """Takes events out of bytes."""

    @property
    def pending(self) -> int: ...

    def feed(self, data: bytes) -> list[Event]: ...

    def close(self) -> list[Event]: ...


class VeiledEvents:
    """Events under a veil, taken out of bytes in which a secret need not be seen, such as frames in base64."""

    __slots__ = ("_events", "_veil")

    def __init__(self, events: Events, veil: Veil) -> None:
        self._events = events
        self._veil = veil

    @property
    def pending(self) -> int:
        """Bytes of an event that is not whole yet."""
        return self._events.pending

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes. Raises ValueError."""
        return [*map(self._over, self._events.feed(data))]

    def close(self) -> list[Event]:
        """What is left when the stream has ended. Raises ValueError."""
        return [*map(self._over, self._events.close())]

    def _over(self, event: Event) -> Event:
        return Event(event.name, self._veil.over_bytes(event.data))


@lru_cache(maxsize=1024)
def veil_over(secrets: tuple[str, ...]) -> Veil | None:
    """The veil over some secrets; None where there is nothing to hide."""
    long = [secret for secret in secrets if len(secret) >= SHORTEST]
    return Veil(*long) if long else None


def _end(secret: str) -> str:
    """What of a secret is looked for."""
    return secret[-END:] if len(secret) > LONGEST else secret


def _character(char: str) -> str:
    """One character, as it is or escaped: `\\/`, `\\u0073`, `\\x73`, `%73`, `&#115;`, `&#x73;`, `&amp;`."""
    code = f"{ord(char):02x}"
    named = f"|&{_NAMED[char]};" if char in _NAMED else ""
    return (
        rf"(?:\\{{0,3}}{re.escape(char)}|\\{{1,3}}(?i:u00{code}|x{code})|%(?:25)?(?i:{code})"
        rf"|&#(?i:x0?{code}|0?{ord(char)});{named})"
    )


def _base64(secret: str, before: int) -> str:
    """The secret in base64, `before` bytes after a beginning of three: what of it does not depend on its neighbours."""
    code = b64encode(b"\0" * before + secret.encode()).decode().rstrip("=")
    first = (8 * before + 5) // 6
    last = (before + len(secret)) * 8 // 6
    return code[first:last]


def _in_base64(code: str) -> str:
    """Both alphabets, and `/` as JSON may escape it."""
    return "".join({"+": "[+-]", "/": r"(?:\\?/|_)"}.get(char, char) for char in code)


def _alike(code: str) -> str:
    """The longest part of a base64 text that both alphabets write alike."""
    return max(re.split("[+/]", code), key=len)
