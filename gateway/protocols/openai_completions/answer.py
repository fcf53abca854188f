"""The answer of a completions upstream, read from the bytes of a 2xx body, written as the client asked for it.

Text passes as it comes, with the gateway's id, `created` and model. The terminal part (finish reasons, usage,
`[DONE]`; or the whole JSON body) is held back for `final`, so that the relay can settle first. Client and upstream may
each stream or not; what the upstream did is seen from its first bytes.
"""

from decimal import Decimal
from typing import Any

import msgspec

from billing.tokens import Tokens
from gateway.protocols.openai_chat.answer import finish_words
from gateway.protocols.openai_chat.answer.faults import fault_in_answer
from gateway.protocols.openai_chat.answer.held import A_PIECE, Held
from gateway.protocols.openai_chat.answer.opening import opening
from gateway.protocols.openai_chat.answer.reported import Reported
from gateway.protocols.openai_chat.answer.shown_usage import show as show_usage
from gateway.protocols.openai_completions.request import CompletionRequest
from gateway.wire import sse, strict_json
from gateway.wire.errors import UpstreamFault
from routing.health.faults import Fault

MAX_BODY = sse.MAX_EVENT
MAX_VALUES = 2_000_000  # Log probabilities are many.
_encode = msgspec.json.Encoder().encode


class _Choice:
    """One text: `parts` are kept for a client that does not stream; `seen`: something of it has come."""

    __slots__ = ("finish", "logprobs", "native", "parts", "seen")

    def __init__(self) -> None:
        self.seen = False
        self.finish: str | None = None
        self.native: str | None = None
        self.parts: list[str] = []
        self.logprobs: dict[str, Any] | None = None


class AnswerReader:
    """Reads one upstream answer. `feed` its bytes, call `end` when they end, settle, then send `final`.

    - `id`, `created` (Unix seconds), `model`: the gateway's own

    What it knows is what `gateway.protocols.Answer` says.
    """

    def __init__(self, request: CompletionRequest, *, id: str, created: int, model: str) -> None:
        self.meaningful = self.complete = False
        self.upstream_id = ""
        self.fault: UpstreamFault | None = None
        self._request = request
        self._ours = {"id": id, "object": "text_completion", "created": created, "model": model}
        self._choices = [_Choice() for _ in range(request.choices)]
        self._held = Held()
        self._opening = b""
        self._events: sse.EventReader | None = None
        self._whole: bytearray | None = None
        self._bytes = 0
        self._late: list[bytes] = []
        self._reported = Reported()
        self._top: dict[str, Any] = {}
        self._shown: Tokens | None = None
        self._cost: Decimal | None = None

    @property
    def usage(self) -> Tokens | None:
        """The upstream's counts."""
        return self._reported.tokens

    @property
    def usage_suspect(self) -> bool:
        """Whether it sent counts that cannot be believed, or do not add up."""
        return self._reported.suspect

    @property
    def begun(self) -> bool:
        """Whether an answer is under way."""
        return self.meaningful or self._whole is not None

    @property
    def relayed_bytes(self) -> int:
        """UTF-8 bytes of text that were written, without the prompts that came back."""
        return max(0, self._bytes - self._request.echoed_bytes)

    @property
    def unread(self) -> int:
        """Bytes that wait for the rest of their event or body."""
        if self._whole is not None:
            return len(self._whole)
        return 0 if self._events is None else self._events.pending

    @property
    def finish_reason(self) -> str | None:
        """Why the first text ended, in OpenAI's words; None while it has not."""
        return self._choices[0].finish

    @property
    def native_finish_reason(self) -> str | None:
        """The same in the upstream's own word."""
        return self._choices[0].native

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes as they came; give the frames they complete, for a streaming client.

        Raises `UpstreamFault`; where frames came before it in the same bytes, the next call does (`fault`).
        """
        if self.fault:
            raise self.fault
        if self.complete:
            return []
        if self._events is None and self._whole is None:
            is_json, data = opening(self._opening + data)
            if is_json is None:
                self._opening = data
                return []
            self._whole = bytearray() if is_json else None
            self._events = None if is_json else sse.EventReader()
        if self._whole is not None:
            self._whole += data
            if len(self._whole) > MAX_BODY:
                raise _invalid(f"the body is longer than {MAX_BODY} bytes")
            return []
        assert self._events is not None
        out: list[bytes] = []
        try:
            self._take(self._events.feed(data), out)
        except (UpstreamFault, sse.EventTooLong) as error:
            fault = error if isinstance(error, UpstreamFault) else _invalid(str(error))
            if not out:
                raise fault from None
            self.fault = fault
        return out

    def end(self) -> None:
        """The upstream's body ended. Raises `UpstreamFault`: TRUNCATED if a text is unfinished."""
        if self.fault:
            raise self.fault
        if self.complete:
            return
        if self._whole is not None:
            self._read_whole(bytes(self._whole))
        elif self._events is not None:
            try:
                self._take(self._events.close(), self._late)
            except UpstreamFault as fault:
                if fault.kind is not Fault.INVALID_RESPONSE or not self.meaningful:
                    raise
        if not self.complete:
            self._done(said=False)

    def set_usage(self, tokens: Tokens) -> None:
        """Show these counts, which are what is billed."""
        self._shown = tokens

    def set_cost(self, dollars: Decimal | None) -> None:
        """What the answer is charged, for a client that asked to see it."""
        self._cost = dollars

    def final(self) -> bytes:
        """After settlement, once: the closing events of a stream, or the whole JSON body."""
        usage = self._usage()
        if not self._request.stream:
            choices = [
                _shown(at, "".join(c.parts), c.logprobs, c.finish, c.native) for at, c in enumerate(self._choices)
            ]
            body = self._top | self._ours | {"choices": choices}
            return _encode(body | ({"usage": usage} if usage else {}))
        out = [*self._late]
        for at, choice in enumerate(self._choices):
            out.append(self._frame({"choices": [_shown(at, "", None, choice.finish, choice.native)]}))
        if usage and self._request.include_usage:
            out.append(sse.encode(_encode(self._top | self._ours | {"choices": [], "usage": usage})))
        return b"".join([*out, sse.DONE])

    def _usage(self) -> dict[str, Any] | None:
        tokens = self._shown or self._reported.tokens
        if tokens is None:
            return None
        sent = self._reported.sent if tokens == self._reported.tokens else {}
        return show_usage(tokens, sent, cost=self._cost)

    def _take(self, events: list[sse.Event], out: list[bytes]) -> None:
        for name, payload in events:
            if self.complete:
                return
            if payload.strip() == b"[DONE]":
                self._done(said=True)
                return
            try:
                chunk = strict_json.loads_answer(payload)
            except strict_json.BadJson as error:
                if payload.isspace() or payload.startswith(b":"):
                    continue
                raise _invalid(f"an event is not JSON: {error}") from None
            if type(chunk) is not dict:
                raise _invalid("an event is not an object")
            if name == b"error" or chunk.get("error"):
                raise fault_in_answer(chunk.get("error") or chunk, payload)
            if shown := self._chunk(chunk, payload):
                out.append(self._frame(shown))

    def _chunk(self, chunk: dict[str, Any], raw: bytes) -> dict[str, Any] | None:
        """The chunk as a streaming client sees it at once; None if nothing of it is for now."""
        self._note(chunk, raw)
        kept = []
        for sent in self._listed(chunk):
            at, choice = self._choice(sent)
            choice.seen = True
            text, logprobs = self._text(sent), sent.get("logprobs")
            self._end(choice, sent)
            if not text and not logprobs:
                continue
            self.meaningful = True
            if self._request.stream:
                kept.append(_shown(at, text, logprobs, None, None))
            else:
                self._held.add_bytes(len(text) + A_PIECE)
                choice.parts.append(text)
                choice.logprobs = _joined(choice.logprobs, logprobs)
        return chunk | {"choices": kept} if kept else None

    def _read_whole(self, body: bytes) -> None:
        try:
            answer = strict_json.loads_answer(body, most_values=MAX_VALUES)
        except strict_json.BadJson as error:
            raise _invalid(f"the body is not JSON: {error}") from None
        if type(answer) is not dict:
            raise _invalid("the body is not an object")
        if answer.get("error"):
            raise fault_in_answer(answer["error"], body)
        shown = self._chunk(answer, body)
        if shown and self._request.stream:
            self._late.append(self._frame(shown))
        self._done(said=True)

    def _done(self, said: bool) -> None:
        """The upstream `said` that it is done, maybe without saying why, or its body ended."""
        if not any(choice.seen for choice in self._choices):
            raise _invalid("the answer is empty")
        if not all(choice.finish or (said and choice.seen) for choice in self._choices):
            raise UpstreamFault(Fault.TRUNCATED, "the answer ended before a text did")
        for choice in self._choices:
            choice.finish = choice.finish or "stop"
        self.meaningful = self.complete = True

    def _note(self, answer: dict[str, Any], raw: bytes) -> None:
        self._reported.take(answer, raw)
        if type(id := answer.get("id")) is str and not self.upstream_id:
            self.upstream_id = id.replace("\0", "")[:200]
        self._top.update((k, v) for k, v in answer.items() if k not in ("choices", "usage") and v is not None)

    def _listed(self, answer: dict[str, Any]) -> list[dict[str, Any]]:
        choices = answer.get("choices", [])
        if type(choices) is not list or not all(type(choice) is dict for choice in choices):
            raise _invalid("choices is not an array of objects")
        answer["choices"] = choices
        return choices

    def _choice(self, sent: dict[str, Any]) -> tuple[int, _Choice]:
        at = sent.get("index") or 0
        if type(at) is not int or not 0 <= at < len(self._choices):
            raise _invalid("a choice has an index that nobody asked for")
        return at, self._choices[at]

    def _text(self, sent: dict[str, Any]) -> str:
        text = sent.get("text")
        if text is None:
            return ""
        if type(text) is not str:
            raise _invalid("a text is not a string")
        self._bytes += len(text.encode())
        return text

    def _end(self, choice: _Choice, sent: dict[str, Any]) -> None:
        word = sent.get("finish_reason")
        if not word:
            return
        if type(word) is not str:
            raise _invalid("a finish reason is not a string")
        meant = finish_words.meaning(word)
        if type(meant) is Fault:
            raise UpstreamFault(meant, f"in a 200: finish_reason {word[:40]!r}")
        choice.finish, choice.native = meant or "stop", finish_words.native(word)
        self.meaningful = True

    def _frame(self, chunk: dict[str, Any]) -> bytes:
        made = chunk | self._ours
        return sse.encode(_encode(made | ({"usage": None} if self._request.include_usage else {})))


def _shown(at: int, text: str, logprobs: Any, finish: str | None, native: str | None) -> dict[str, Any]:
    made = {"text": text, "index": at, "logprobs": logprobs, "finish_reason": finish}
    return made if native in (None, finish) else made | {"native_finish_reason": native}


def _joined(known: dict[str, Any] | None, more: Any) -> dict[str, Any] | None:
    """Log probabilities are lists under names, of the same length."""
    if type(more) is not dict:
        return known
    if known is None:
        return dict(more)
    for name, value in more.items():
        known[name] = known[name] + value if type(value) is list and type(known.get(name)) is list else value
    return known


def _invalid(detail: str) -> UpstreamFault:
    return UpstreamFault(Fault.INVALID_RESPONSE, detail, unreadable=True)
