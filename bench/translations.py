"""What it costs to translate: every protocol that a client speaks over every one that a provider speaks.

The same text, an event each 20 ms, asked for by a crowd; CPU is the gateway's, for an event that its client gets. It
is compared with that of an event which passes from the same provider. And how long the first event that says something
is under way: the provider has sent what comes before it, is told to go on, and goes on at once.
"""

import json
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

import uvloop

from bench.footprint import footprint
from bench.load import Broken
from bench.scale import Scale
from bench.site import Running, say
from bench.streams import crowd
from bench.wire import Question
from gateway.protocols import PROTOCOLS
from tests.pairs.clients import CLIENTS
from tests.pairs.providers import PROVIDERS
from tests.pairs.said import Question as Asked
from tests.pairs.said import Said
from tests.simulated.process import SimulatedProvider

PACE_MS = 20
SPREAD_SECONDS = 0.3
WORD = "Titan"  # as long as the pieces in which a provider says a text
# How a stream ends whose last event is always the same, and how any other.
_ENDINGS = {
    "openai_chat": b"data: [DONE]\n\n",
    "anthropic_messages": b'data: {"type":"message_stop"}\n\n',
}
_BLANK = b"\n\n"
_LAST_CHUNK = b"\r\n0\r\n\r\n"

Pair = tuple[str, str]  # the client's protocol, the provider's


@dataclass(frozen=True)
class Translations:
    """By "CLIENT over PROVIDER": CPU an event in microseconds, and for how long a first event is under way, in ms."""

    cpu_us: dict[str, float]
    first_ms: dict[str, float]

    @property
    def worst_ratio(self) -> float:
        """The most that an event costs which is translated, in those that pass from the same provider."""
        return max(
            self.cpu_us[_name(client, provider)] / self.cpu_us[_name(provider, provider)]
            for client, provider in pairs()
            if client != provider
        )

    @property
    def latest_ms(self) -> float:
        """How long the first event of the slowest pair is under way, by its median."""
        return max(self.first_ms.values())


def pairs() -> Iterator[Pair]:
    """Every pair."""
    return ((client, provider) for provider in PROTOCOLS for client in PROTOCOLS)


def measure(running: Running, provider: SimulatedProvider, scale: Scale) -> Translations:
    """Measures a gateway that has a model of each protocol at `provider` (`running.spoken`). Raises `Broken`."""
    cpu: dict[str, float] = {}
    first: dict[str, float] = {}
    for protocol in PROTOCOLS:
        _speak(provider, protocol, scale.stream_tokens)
        for client in PROTOCOLS:
            say(f"  meterline: {_name(client, protocol)}")
            question = _question(running, client, protocol)
            found = uvloop.run(crowd(question, scale.streams, SPREAD_SECONDS, lambda: footprint(running.pid)))
            cpu[_name(client, protocol)] = found.cpu_us_per_event
        _hold(provider, protocol)
        for client in PROTOCOLS:
            taken = [_first(running, provider, client, protocol) for _ in range(scale.firsts)]
            first[_name(client, protocol)] = median(taken) * 1e3
    return Translations(cpu, first)


def upstream_name(protocol: str) -> str:
    """What the provider of a protocol calls the model."""
    return f"bench-{protocol}"


def _name(client: str, provider: str) -> str:
    return f"{client} over {provider}"


def _speak(provider: SimulatedProvider, protocol: str, words: int) -> None:
    """From now on the model says so many words of five letters, an event each."""
    data = PROVIDERS[protocol].stream(Said(text=WORD * words))
    ends = (match.end() for match in re.finditer(_BLANK, data))
    delivery = ",".join(f"{end}:{PACE_MS}ms" for end in ends)
    provider.behave(upstream_name(protocol), provider.script(upstream_name(protocol), data, pauses=delivery))


def _hold(provider: SimulatedProvider, protocol: str) -> None:
    """From now on the model says its one word when it is released."""
    data = PROVIDERS[protocol].stream(Said(text=WORD))
    before = data.rfind(_BLANK, 0, data.index(WORD.encode()))
    at = 0 if before < 0 else before + len(_BLANK)
    script = provider.script(upstream_name(protocol), data, pauses=f"{at}:0ms")
    provider.behave(upstream_name(protocol), f"{script}&hold={1 if at else 0}")


def _asked(running: Running, client: str, provider: str) -> tuple[str, bytes]:
    """Path and body of what a client asks."""
    model = running.spoken[provider]
    return CLIENTS[client].path(model, True), json.dumps(CLIENTS[client].body(Asked(), model, True)).encode()


def _question(running: Running, client: str, provider: str) -> Question:
    """What a client asks. One answer is read, for the number of events that each must have."""
    path, payload = _asked(running, client, provider)
    answer = running.ask(path, payload)
    if answer.count(WORD.encode()) < 2:
        raise Broken(f"an answer that says nothing: {answer[:200]!r}")
    return Question(
        running.port,
        running.request(path, payload),
        events=answer.count(_BLANK),
        ending=_ENDINGS.get(client, _BLANK),
    )


def _first(running: Running, provider: SimulatedProvider, client: str, protocol: str) -> float:
    """Seconds from when the provider was told to say its word until the client had it."""
    path, payload = _asked(running, client, protocol)
    with socket.create_connection(("127.0.0.1", running.port), timeout=30) as line:
        line.sendall(running.request(path, payload))
        while not provider.state()["waiting"]:
            time.sleep(0.001)
        begun = time.perf_counter()
        provider.release()
        seen = _read_until(line, WORD.encode())
        taken = time.perf_counter() - begun
        _read_until(line, _LAST_CHUNK, seen)  # both may have come at once
    return taken


def _read_until(line: socket.socket, end: bytes, seen: bytes = b"") -> bytes:
    """The last of what was read, `end` among it; `seen` was read before."""
    while end not in seen:
        if not (part := line.recv(65_536)):
            raise Broken(f"a stream ended without {end!r}")
        seen = seen[-len(end) :] + part
    return seen
