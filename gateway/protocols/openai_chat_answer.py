"""The answer of an OpenAI chat upstream, read from the bytes of a 2xx body, written as the client asked for
it.

Client and upstream may each stream or not: what the upstream did is seen from its first bytes, whatever its
Content-Type says. The terminal part (finish reasons, usage, `[DONE]`; or the whole JSON body) is held back
for `final`, so that the relay can settle first.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from billing.tokens import Tokens
from gateway import sse, strict_json
from gateway.errors import Fault, UpstreamFault
from gateway.protocols import openai_chat_usage
from gateway.protocols.openai_chat_choice import MAX_CHOICES, Choice
from gateway.protocols.openai_chat_faults import fault_in_answer

if TYPE_CHECKING:
    from gateway.protocols.openai_chat import ChatRequest

MAX_WHOLE = 32 << 20  # Bytes of a JSON body.
MAX_ASSEMBLED = 64 << 20  # Bytes of a stream that is put together in memory: some 300,000 tokens.
MAX_UPSTREAM_VALUES = 2_000_000  # With twenty log probabilities a token an answer has a lot of them.

MAX_ID = 200  # Characters kept of an upstream's id.

_ENVELOPE = frozenset({"id", "object", "created", "model", "choices", "usage", "system_fingerprint", "service_tier"})
_PINGS = frozenset({b"ping", b"keepalive", b"keep-alive", b"heartbeat"})
_BLANK = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_MAX_HEAD = 1 << 16

_decode = msgspec.json.Decoder().decode  # Refuses NaN, numbers out of range, lone surrogates and invalid UTF-8.
_encode = strict_json.dumps


class AnswerReader:
    """Reads one upstream answer. `feed` its bytes, call `end` when they end, settle, then send `final`.

    `id`, `created` (Unix seconds) and `model` are the gateway's own and stand on every chunk.

    - `meaningful`: something to show has been read (text, a tool call, a finish reason); before that a relay
      sends nothing and may try another offer
    - `complete`: the answer is whole: `[DONE]` came or `end` found it so; nothing that follows is read
    - `usage`: the upstream's counts, None if it sent none that can be believed; `usage_suspect`: it sent a lie
    - `fault`: see `feed`
    - `skipped`: events ignored as keep-alives
    - `upstream_id`: the answer's id at the provider, for its bill; empty if it gave none
    """

    __slots__ = (
        *("complete", "fault", "meaningful", "skipped", "upstream_id", "usage", "usage_suspect"),
        *("_answer", "_asked_usage", "_beside_usage", "_choices", "_events", "_fed", "_head", "_late"),
        *("_ours", "_shown_usage", "_streams", "_top", "_whole"),
    )

    def __init__(self, request: "ChatRequest", *, id: str, created: int, model: str) -> None:
        self.meaningful = False
        self.complete = False
        self.usage: Tokens | None = None
        self.usage_suspect = False
        self.skipped = 0
        self.upstream_id = ""
        self.fault: UpstreamFault | None = None
        self._streams = request.stream
        self._asked_usage = request.include_usage
        kind = "chat.completion.chunk" if request.stream else "chat.completion"
        self._ours = {"id": id, "object": kind, "created": created, "model": model}
        self._choices: dict[int, Choice] = {}
        self._head = b""  # Bytes seen while it is not clear yet what they begin.
        self._events: sse.EventReader | None = None
        self._whole: bytearray | None = None
        self._fed = 0
        self._top: dict[str, Any] = {}  # Fields of a stream's chunks, for the body made of them.
        self._answer: dict[str, Any] | None = None  # A whole body, as it will be shown.
        self._late: list[bytes] = []  # Frames that only `end` could make.
        self._beside_usage: dict[str, Any] = {}
        self._shown_usage: dict[str, Any] | None = None

    @property
    def relayed_bytes(self) -> int:
        """UTF-8 bytes of text, reasoning and arguments read so far: what an estimate counts.

        All of them have been handed out if client and upstream both stream; else none before `final`.
        """
        return sum(choice.bytes for choice in self._choices.values())

    @property
    def finish_reason(self) -> str | None:
        """Why the first choice ended, in OpenAI's words; None while it has not."""
        return self._choices[min(self._choices)].finish if self._choices else None

    @property
    def native_finish_reason(self) -> str | None:
        """The same in the upstream's own word; None if it gave none."""
        return self._choices[min(self._choices)].native if self._choices else None

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes as they came; give the frames they complete, for a streaming client (else none).

        Raises `UpstreamFault`. Frames that came before the fault in the same bytes are not lost: once the
        answer is `meaningful` they are returned, the fault waits in `fault`, and the next `feed` or `end`
        raises it.
        """
        if self.fault:
            raise self.fault
        if self.complete:
            return []
        if self._events is None and self._whole is None:
            data = self._sniff(data)
        if self._whole is not None:
            self._whole += data
            if len(self._whole) > MAX_WHOLE:
                raise UpstreamFault(Fault.INVALID_RESPONSE, "the body passed the size cap")
            return []
        if self._events is None:
            return []
        self._fed += len(data)
        if self._fed > MAX_ASSEMBLED and not self._streams:
            raise UpstreamFault(Fault.INVALID_RESPONSE, "the stream passed the size cap")
        out: list[bytes] = []
        try:
            self._take(self._events.feed(data), out)
        except UpstreamFault as error:
            fault = error
        except sse.EventTooLong as error:
            fault = UpstreamFault(Fault.INVALID_RESPONSE, str(error))
        else:
            return out
        if not (self.meaningful and out):
            raise fault
        self.fault = fault
        return out

    def end(self) -> None:
        """The upstream's body ended. Raises `UpstreamFault`: TRUNCATED if a choice is unfinished.

        Without `[DONE]` an answer is whole when each choice has a finish reason.
        """
        if self.fault:
            raise self.fault
        if self.complete:
            return
        if self._whole is not None:
            self._read_whole(bytes(self._whole))
            return
        if self._events is not None:
            self._read_tail(self._events.close())
        if self._choices and any(choice.finish is None for choice in self._choices.values()):
            raise UpstreamFault(Fault.TRUNCATED, "the stream ended without a finish reason")
        self._done()

    def set_usage(self, tokens: Tokens) -> None:
        """Show these counts to the client, if the upstream sent none that can be. `usage` stays as it was."""
        if self.usage is None:
            self._shown_usage = openai_chat_usage.show(tokens)

    def final(self) -> bytes:
        """The terminal part, after `end`: the closing events of a stream, or the whole JSON body."""
        if self._streams:
            return self._closing_events()
        answer = self._answer or self._assembled()
        if self._shown_usage:
            answer["usage"] = self._shown_usage
        return _encode(answer)

    def _sniff(self, data: bytes) -> bytes:
        """Decide between JSON and events once a byte says so. Blanks and comments before it say nothing."""
        head = self._head + data
        self._head = b""
        while True:
            head = head.lstrip(_BLANK)
            if len(head) < 3 and _BOM.startswith(head):
                break
            if head.startswith(_BOM):
                head = head[3:]
            elif head.startswith(b"{"):
                self._whole = bytearray()
                return head
            elif not head.startswith(b":") or len(head) > _MAX_HEAD:
                self._events = sse.EventReader()
                return head
            else:
                ends = [at for at in (head.find(b"\n"), head.find(b"\r")) if at >= 0]
                if not ends:
                    break
                head = head[min(ends) :]
        self._head = head
        return b""

    def _done(self) -> None:
        """The upstream said that it is done, maybe without saying why: then a choice just stopped."""
        if not self._choices:
            raise UpstreamFault(Fault.INVALID_RESPONSE, "the answer is empty: it has no choices")
        for choice in self._choices.values():
            choice.end_unsaid()
        self.meaningful = self.complete = True

    def _take(self, events: list[sse.Event], out: list[bytes]) -> None:
        for name, payload in events:
            if self.complete:
                return
            self._event(name, payload, out)

    def _event(self, name: bytes, payload: bytes, out: list[bytes]) -> None:
        if payload == b"[DONE]":
            self._done()
            return
        if payload.startswith(b":"):
            self.skipped += 1
            return
        try:
            brackets = payload.count(b"[") + payload.count(b"{")
            chunk = _decode(payload) if brackets <= strict_json.MAX_DEPTH else strict_json.loads(payload)
        except ValueError as error:
            if payload.strip() == b"[DONE]":
                self._done()
            elif name == b"error":
                raise fault_in_answer(payload.decode("utf-8", "replace"), payload) from None
            elif not payload.isspace():
                raise UpstreamFault(Fault.INVALID_RESPONSE, f"an event is not JSON: {error}") from None
            return
        if type(chunk) is not dict:
            raise UpstreamFault(Fault.INVALID_RESPONSE, "an event is not an object")
        if chunk.get("error") or name == b"error":
            raise fault_in_answer(chunk.get("error") or chunk, payload)
        if "choices" not in chunk and "usage" not in chunk:
            self._foreign(name, chunk, out)
            return
        shown = self._chunk(chunk)
        if shown is None:
            return
        if self._streams:
            out.append(b"data: " + _encode(shown) + b"\n\n")
        else:
            self._draw(shown)

    def _foreign(self, name: bytes, chunk: dict[str, Any], out: list[bytes]) -> None:
        """An event that is no chunk: a ping is dropped, any other passes as it is."""
        if name in _PINGS or chunk.get("type") == "ping":
            self.skipped += 1
        elif self._streams:
            out.append((b"event: " + name + b"\n" if name else b"") + sse.encode(_encode(chunk)))

    def _chunk(self, chunk: dict[str, Any]) -> dict[str, Any] | None:
        """The chunk as the client sees it at once, or None if all of it is held back."""
        usage = chunk.pop("usage", None)
        if usage is not None:
            self._take_usage(usage)
        choices = chunk.get("choices")
        self._note_id(chunk)
        chunk.update(self._ours)
        if not choices:
            chunk["choices"] = []
            if usage is not None:
                self._beside_usage = chunk
            return None if usage is not None or chunk.keys() <= _ENVELOPE else chunk
        if type(choices) is not list:
            raise UpstreamFault(Fault.INVALID_RESPONSE, "choices is not an array")
        kept = []
        for sent in choices:
            state = self._choices.get(_index(sent))
            first = state is None
            if state is None:
                state = self._choices[_index(sent)] = Choice(_index(sent))
            shown = state.take(sent, chunk, first)
            self.meaningful = self.meaningful or state.meaningful
            if shown is not None:
                kept.append(shown)
        chunk["choices"] = kept
        return chunk if kept else None

    def _note_id(self, answer: dict[str, Any]) -> None:
        id = answer.get("id")
        if not self.upstream_id and type(id) is str:
            self.upstream_id = id.replace("\0", "")[:MAX_ID]

    def _take_usage(self, usage: Any) -> None:
        """The last usage that is no placeholder stands, be it repeated, growing or a lie."""
        try:
            read = openai_chat_usage.read(usage)
        except openai_chat_usage.BadUsage:
            self.usage, self._shown_usage, self.usage_suspect = None, None, True
            return
        if read:
            self.usage, self._shown_usage = read
            self.usage_suspect = False

    def _read_tail(self, events: list[sse.Event]) -> None:
        """An event without its blank line: whole, or the torn end of a stream that broke off."""
        try:
            self._take(events, self._late)
        except UpstreamFault as fault:
            if fault.kind is not Fault.INVALID_RESPONSE:
                raise
            if not self._choices or any(choice.finish is None for choice in self._choices.values()):
                raise UpstreamFault(Fault.TRUNCATED, "the stream ended inside an event") from None

    def _read_whole(self, body: bytes) -> None:
        try:
            answer = strict_json.loads(body, most_values=MAX_UPSTREAM_VALUES)
        except strict_json.BadJson as error:
            raise UpstreamFault(Fault.INVALID_RESPONSE, f"the body is not JSON: {error}") from None
        if answer.get("error") or answer.get("object") == "error":
            raise fault_in_answer(answer.get("error") or answer, body)
        choices = answer.get("choices")
        if type(choices) is not list or not choices:
            raise UpstreamFault(Fault.INVALID_RESPONSE, "the answer has no choices")
        usage = answer.pop("usage", None)
        if usage is not None:
            self._take_usage(usage)
        self._note_id(answer)
        answer.update(self._ours)
        for sent in choices:
            state = self._choices.setdefault(_index(sent), Choice(_index(sent)))
            for part in state.take_whole(sent, answer):
                if self._streams:
                    self._late.append(sse.encode(_encode(answer | {"choices": [part]})))
        self.meaningful = self.complete = True
        self._answer = answer

    def _closing_events(self) -> bytes:
        out = [*self._late]
        for _, choice in sorted(self._choices.items()):
            chunk = choice.envelope | self._ours | {"choices": [choice.closing()]}
            out.append(sse.encode(_encode(chunk)))
        if self._asked_usage and self._shown_usage:
            usage = {"choices": [], "usage": self._shown_usage}
            out.append(sse.encode(_encode(self._beside_usage | self._ours | usage)))
        out.append(sse.DONE)
        return b"".join(out)

    def _draw(self, shown: dict[str, Any]) -> None:
        """Add a chunk to the body of a client that does not stream."""
        self._top.update((k, v) for k, v in shown.items() if k != "choices" and v is not None)
        for choice in shown["choices"]:
            self._choices[choice["index"]].draw(choice)

    def _assembled(self) -> dict[str, Any]:
        choices = []
        for _, choice in sorted(self._choices.items()):
            self._top.update((k, v) for k, v in choice.envelope.items() if v is not None)
            choices.append(choice.whole())
        return self._ours | {"choices": choices} | {k: v for k, v in self._top.items() if k not in self._ours}


def _index(choice: Any) -> int:
    if type(choice) is dict:
        index = choice.get("index") or 0
        if type(index) is int and 0 <= index < MAX_CHOICES:
            return index
    raise UpstreamFault(Fault.INVALID_RESPONSE, "a choice is not readable")
