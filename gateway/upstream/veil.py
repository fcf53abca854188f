"""Hides a provider's secret in whatever the provider says: the one that was sent with this dial, and no pattern.

An upstream that echoes its Authorization header would else tell it to a tenant, to a log or to the books. All bytes of
an answer pass here (`Reply`), and all words of a failure (`Attempt.failed`). The secret is found as it is; with any of
its characters escaped as JSON, URLs, HTML and programs escape them; and in base64 and hex, also amid more of either. A
provider that means to tell it can tell it in a way that nobody reads: against that there is no veil.
"""

import re
from base64 import b64encode
from functools import lru_cache
from string import ascii_letters, digits

HIDDEN = "[key]"
SHORTEST = 8  # characters; a shorter secret is a placeholder such as "none", and a word of many an answer
_NAMED = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}  # by HTML
_PLAIN = re.compile(r"[A-Za-z0-9_.~-]+")  # what encoders escape only where they escape everything


class Veil:
    """What one secret looks like. `reach` is by how many bytes its longest form may be cut short at an end, `letters`
    are the bytes that any form is made of.
    """

    __slots__ = ("_bytes", "_signs", "_text", "letters", "reach")

    def __init__(self, secret: str) -> None:
        coded = [secret.encode().hex(), *(_base64(secret, before) for before in range(3))]
        forms = ["".join(map(_character, secret)), f"(?i:{coded[0]})", *map(_in_base64, coded[1:])]
        pattern = "|".join(forms)
        self._text = re.compile(pattern)
        self._bytes = re.compile(pattern.encode())
        # In the bytes of an answer a form is looked for only where a long part of it is: what encoders leave alone.
        alike = [max(_PLAIN.findall(secret), key=len, default=""), coded[0], coded[0].upper(), *map(_alike, coded[1:])]
        self._signs = tuple(sign.encode() for sign in alike)
        self.reach = 9 * len(secret)  # as `\\\u0073`
        self.letters = (secret + ascii_letters + digits + "+/-_\\%&#;").encode()

    def over(self, text: str) -> str:
        """The text without the secret."""
        return self._text.sub(HIDDEN, text)

    def over_bytes(self, data: bytes) -> bytes:
        """The bytes without the secret. Nearly all have no sign of it, and are the same object."""
        for sign in self._signs:
            if sign in data:
                return self._bytes.sub(HIDDEN.encode(), data)
        return data


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
        data = self._veil.over_bytes(self._held + data if self._held else data)
        sure = max(len(data) - self._veil.reach, len(data.rstrip(self._veil.letters)))
        self._held = data[sure:]
        return data[:sure]

    def end(self) -> bytes:
        """What waits, when nothing follows."""
        held, self._held = self._held, b""
        return held


@lru_cache(maxsize=1024)
def veil_over(secret: str) -> Veil | None:
    """The veil over a secret; None where there is nothing to hide."""
    return Veil(secret) if len(secret) >= SHORTEST else None


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
