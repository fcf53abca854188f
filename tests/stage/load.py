"""Many clients at once, and what each of them saw: the journal that the books are compared with.

A client has a *final answer* when it holds a whole JSON body under a 200, or a stream's `[DONE]`. That is what must
have been accounted for, whatever died meanwhile.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import aiohttp
import msgspec

DONE = b"data: [DONE]\n\n"


@dataclass
class Answer:
    """What one client saw. Times are `time.monotonic()`; `status` 0: no answer began."""

    secret: str
    sent: float
    status: int = 0
    body: bytes = b""
    generation: UUID | None = None  # from the x-generation-id header
    headers: dict[str, str] = field(default_factory=dict)
    ended: float = 0.0
    whole: bool = False  # nothing of the body is missing

    @property
    def final(self) -> bool:
        """Whether this is a final answer."""
        if self.status != 200 or not self.whole:
            return False
        return self.body.endswith(DONE) or self.body.startswith(b'{"')

    @property
    def seconds(self) -> float:
        """From sending to the end."""
        return self.ended - self.sent

    def json(self) -> Any:
        """The body of an answer that is no stream."""
        return msgspec.json.decode(self.body)

    def events(self) -> list[Any]:
        """The payloads of a stream, `[DONE]` as text."""
        payloads = [line[6:] for line in self.body.split(b"\n") if line.startswith(b"data: ")]
        return ["[DONE]" if payload == b"[DONE]" else msgspec.json.decode(payload) for payload in payloads]


class Clients:
    """Sends chat completions. Each keeps a connection of its own while it waits, as separate programs would."""

    def __init__(self) -> None:
        self.journal: list[Answer] = []
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "Clients":
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=90), trust_env=False
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()
        await asyncio.sleep(0)  # the transports close in the next turn of the loop

    async def ask(self, url: str, secret: str, model: str, words: int = 1, **body: Any) -> Answer:
        """One request whose message has `words` words, written into the journal whatever becomes of it."""
        assert self._session is not None
        body = {"model": model, "messages": [{"role": "user", "content": " ".join(["w"] * words)}], **body}
        answer = Answer(secret, time.monotonic())
        self.journal.append(answer)
        try:
            async with self._session.post(
                f"{url}/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {secret}"}
            ) as response:
                answer.status = response.status
                answer.headers = {name.lower(): value for name, value in response.headers.items()}
                if id := answer.headers.get("x-generation-id"):
                    answer.generation = UUID(hex=id)
                async for data in response.content.iter_any():
                    answer.body += data
                answer.whole = True
        except (aiohttp.ClientError, OSError):
            pass  # its gateway died: that is what the journal is for
        finally:
            answer.ended = time.monotonic()
        return answer

    async def insist(self, url: str, secret: str, model: str, **body: Any) -> Answer:
        """An answer other than "try again shortly", which a busy machine gives when a hold takes too long."""
        while True:
            answer = await self.ask(url, secret, model, **body)
            if answer.status != 503:
                return answer


async def keep_asking(
    clients: int, until: Callable[[], bool], ask: Callable[[int], "asyncio.Future[Answer] | Any"]
) -> None:
    """`clients` of them send one request after another, numbered from 0, until `until()`."""
    number = 0

    async def client() -> None:
        nonlocal number
        while not until():
            number += 1
            answer = await ask(number - 1)
            if answer.status != 200:
                await asyncio.sleep(0.02)  # a refused client that comes back at once only heats the machine

    await asyncio.gather(*(client() for _ in range(clients)))
