"""AWS's Signature Version 4: the headers that prove who sends a request, without its secret being in it.

The steps and their names are those of AWS's reference ("Create a signed request"). A request is signed as it is sent:
its path and query as they stand in it, every header given here, the body's SHA-256.
"""

import hmac
from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from urllib.parse import quote

from routing.provider_secret import AwsKey

ALGORITHM = "AWS4-HMAC-SHA256"


def headers(
    key: AwsKey,
    *,
    region: str,
    service: str,
    method: str,
    authority: str,
    path: str,
    body: bytes,
    sent: Iterable[tuple[str, str]] = (),
    at: datetime,
) -> list[tuple[str, str]]:
    """The headers that sign a request, to be sent with it.

    `authority` is what its Host header says, `path` the target with its query, `sent` the headers that are signed, and
    must arrive as they are: without User-Agent and those of the connection. `at` is aware.
    """
    stamp = at.strftime("%Y%m%dT%H%M%SZ")
    added = [("X-Amz-Date", stamp)]
    if key.token:
        added.append(("X-Amz-Security-Token", key.token))
    signed = sorted((name.lower(), " ".join(value.split())) for name, value in (("host", authority), *sent, *added))
    names = ";".join(name for name, _ in signed)
    path, _, query = path.partition("?")
    request = "\n".join(
        (
            method,
            quote(path or "/", safe="/~"),
            "&".join(
                "=".join(pair) for pair in sorted(tuple(part.partition("=")[::2]) for part in query.split("&") if part)
            ),
            *(f"{name}:{value}" for name, value in signed),
            "",
            names,
            sha256(body).hexdigest(),
        )
    )
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    to_sign = "\n".join((ALGORITHM, stamp, scope, sha256(request.encode()).hexdigest()))
    signature = hmac.new(_signing_key(key.secret, stamp[:8], region, service), to_sign.encode(), sha256).hexdigest()
    proof = f"{ALGORITHM} Credential={key.id}/{scope}, SignedHeaders={names}, Signature={signature}"
    return [*added, ("Authorization", proof)]


@lru_cache(maxsize=256)
def _signing_key(secret: str, day: str, region: str, service: str) -> bytes:
    made = f"AWS4{secret}".encode()
    for part in (day, region, service, "aws4_request"):
        made = hmac.digest(made, part.encode(), sha256)
    return made
