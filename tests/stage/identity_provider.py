"""An identity provider on a socket, whom nobody here wrote: `oidc-provider-mock`. What it is sent is kept."""

import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any
from urllib.parse import parse_qs

import httpx

# Nobody is trusted: to read who may be takes 40 ms.
BROWSER = httpx.Client(trust_env=False, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


@dataclass
class IdentityProvider:
    """`tokens` are the forms that came to its token endpoint, with the header that proves the client."""

    url: str
    app: Any
    tokens: list[dict[str, str]] = field(default_factory=list)
    says: Callable[[str, bytes], bytes] = lambda path, body: body  # what becomes of an answer on its way

    def knows(self, subject: str, **claims: Any) -> None:
        """Has it say so of somebody."""
        BROWSER.put(f"{self.url}/users/{subject}", json=claims).raise_for_status()

    def sign_in(self, address: str, subject: str) -> str:
        """Signs `subject` in where a browser was sent; gives where it is sent back to."""
        answer = BROWSER.post(address, data={"sub": subject})
        assert answer.status_code == 302, answer.text
        return str(answer.headers["location"])


@contextmanager
def identity_provider() -> Iterator[IdentityProvider]:
    """One that runs while the block does."""
    from oidc_provider_mock import app
    from werkzeug.serving import make_server

    made = app(require_nonce=True)
    inner = made.wsgi_app

    def kept(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/oauth2/token":
            body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            environ["wsgi.input"] = BytesIO(body)
            form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
            provider.tokens.append({**form, "authorization": environ.get("HTTP_AUTHORIZATION", "")})
        began: list[Any] = []
        body = b"".join(inner(environ, lambda *words: began.append(words)))
        body = provider.says(path, body)
        status, headers, *_ = began[0]
        start(status, [(name, value) for name, value in headers if name.lower() != "content-length"])
        return [body]

    made.wsgi_app = kept
    server = make_server("127.0.0.1", 0, made, threaded=True)
    provider = IdentityProvider(f"http://127.0.0.1:{server.server_port}", made)
    thread = threading.Thread(target=lambda: server.serve_forever(0.01))
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
