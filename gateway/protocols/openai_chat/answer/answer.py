"""The answer of an OpenAI chat upstream, read from the bytes of a 2xx body, written as the client asked for
it.

What comes out does not depend on which of its upstreams answered: one id, `created` and `model` on every chunk,
the role once, OpenAI's finish reasons with the upstream's own word beside them as `native_finish_reason` where
it differs, reasoning under all three names, usage with every bucket, usable tool calls. Fields that nobody here
knows pass as they came.

Client and upstream may each stream or not: what the upstream did is seen from its first bytes, whatever its
Content-Type says. The terminal part (finish reasons, usage, `[DONE]`; or the whole JSON body) is held back
for `final`, so that the relay can settle first.
"""

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from billing.tokens import Tokens
from gateway.protocols.openai_chat.answer import payload as data_of
from gateway.protocols.openai_chat.answer.body import ENVELOPE, Body
from gateway.protocols.openai_chat.answer.choice import Choice, Manner
from gateway.protocols.openai_chat.answer.choices import index_of, listed, one_an_index
from gateway.protocols.openai_chat.answer.ending import Ending
from gateway.protocols.openai_chat.answer.held import A_PIECE, Held
from gateway.protocols.openai_chat.answer.opening import opening
from gateway.protocols.openai_chat.answer.writer import CHAT
from gateway.protocols.openai_chat.faults import fault_in_answer
from gateway.protocols.openai_chat.usage.reported import Reported
from gateway.protocols.sides import Events, Passing, Sent, Source, Writer
from gateway.wire import sse
from gateway.wire.dialects import STANDARD, Dialect
from gateway.wire.errors import GatewayError, UpstreamFault
from routing.health.faults import Fault

if TYPE_CHECKING:
    from gateway.protocols.openai_chat.request.request import ChatRequest

LONG = 64 << 10  # Bytes of an event that has begun, and is not waited for when nobody wants it.
MAX_ID = 200  # Characters kept of an upstream's id,
MAX_TIER = 32  # and of the class of service it names.

_PINGS = frozenset({b"ping", b"keepalive", b"keep-alive", b"heartbeat"})


class AnswerReader:
    """Reads one upstream answer. `feed` its bytes, call `end` when they end, settle, then send `final`.

    - `id`, `created` (Unix seconds), `model`: the gateway's own; they stand on every chunk
    - `dialect`: what the client expects of the odd fields
    - `output_cap`: tokens the upstream was allowed for the answer, so that one that reached it and says that it
      just stopped is shown as cut off; None: not known
    - `stops`: the client's stop sequences that the upstream was not told. The text ends before the first of
      them; once all choices have, the answer is `stopped`: what follows is only counted, until the upstream ends or
      `conclude` is called
    - `most_bytes`: of one event, or of a whole JSON body
    - `keeps_text`: `said` is wanted; `after`: what another upstream said before it broke off, and this one goes on
      from
    - `writer`: tells it in the client's protocol

    What it knows:

    - `meaningful`: something to show has been read (text, a tool call, a finish reason); before that a relay
      sends nothing and may try another offer
    - `complete`: the answer is whole: `[DONE]` came or `end` found it so; nothing that follows is read
    - `stopped`: see `stops`, or `abandon`
    - `abandoned`: why nobody wants it any more
    - `fault`: see `feed`
    - `skipped`: events ignored as keep-alives
    - `upstream_id`: the answer's id at the provider, for its bill; empty if it gave none
    - `tier`: the class of service it said that it served; empty if it did not
    """

    __slots__ = (
        *("abandoned", "complete", "fault", "meaningful", "skipped", "stopped", "tier", "upstream_id"),
        *("_answer", "_body", "_choices", "_cut_short", "_dialect", "_echoed", "_ending", "_events", "_frame"),
        *("_held", "_manner", "_most_bytes", "_opening", "_ours", "_output_cap", "_passing", "_reported", "_request"),
        *("_seen", "_sent", "_source", "_streams", "_wanted_bytes", "_whole", "_writer"),
    )

    def __init__(
        self,
        request: "ChatRequest",
        *,
        id: str,
        created: int,
        model: str,
        dialect: Dialect = STANDARD,
        output_cap: int | None = None,
        stops: tuple[str, ...] = (),
        most_bytes: int = sse.MAX_EVENT,
        keeps_text: bool = False,
        after: str = "",
        writer: Writer = CHAT,
    ) -> None:
        self.meaningful = False
        self.complete = self.stopped = self._cut_short = False
        self.skipped = 0
        self.upstream_id = self.tier = ""
        self.fault: UpstreamFault | None = None
        self.abandoned: GatewayError | None = None
        self._wanted_bytes = 0
        self._echoed = request.echoed_bytes
        self._request = request
        self._writer = writer
        self._frame = writer.chunk
        self._source: Source | None = None
        self._passing: Passing | None = None
        self._sent: dict[str, Any] | None = None  # A whole body of the client's protocol, which passes.
        self._streams = request.stream
        self._dialect = dialect
        self._output_cap = output_cap
        self._most_bytes = most_bytes
        self._manner = Manner(
            logprobs=request.logprobs,
            null_logprobs=dialect.null_logprobs and request.stream,
            reasoning=not request.hides_reasoning,
            functions=request.legacy_functions,
            tools=request.body.get("tools"),
            stops=stops,
            call_prefix=f"call_{id}_",
            keeps_text=keeps_text,
            after=after,
        )
        kind = "chat.completion.chunk" if request.stream else "chat.completion"
        self._ours: dict[str, Any] = {"id": id, "object": kind, "created": created, "model": model}
        if dialect.hides_fingerprint:
            self._ours["system_fingerprint"] = None
        if request.stream and (dialect.null_usage or request.include_usage):
            self._ours["usage"] = None
        self._choices: dict[int, Choice] = {}
        self._held = Held()
        self._opening = b""  # What came before it was clear whether this is JSON or a stream.
        self._events: Events | None = None
        self._whole: bytearray | None = None
        self._seen = False  # An event came.
        self._body = Body(self._ours, self._held)  # Of a stream, for a client that does not.
        self._answer: dict[str, Any] | None = None  # A whole body, as it will be shown.
        self._reported = Reported()
        self._ending = Ending(request, dialect, self._ours)

    def understand(self, sent: Sent) -> None:
        """What comes is the answer to this. To be called before `feed`."""
        self._source, self._events, self._passing = sent.source, sent.events, sent.passing
        if self._passing is not None:
            self._frame = _unsaid

    @property
    def passes(self) -> bool:
        """Whether the client's own body was sent, and what comes goes on as it is."""
        return self._passing is not None

    @property
    def usage(self) -> Tokens | None:
        """The upstream's counts. A half of them that is 0 may only not have been counted."""
        return self._reported.tokens

    @property
    def usage_suspect(self) -> bool:
        """Whether it sent counts that cannot be believed, or do not add up."""
        return self._reported.suspect

    def disbelieve(self) -> None:
        """Its counts cannot be: `usage` is none from now on."""
        self._reported.disbelieve()

    @property
    def usage_claim(self) -> dict[str, Any] | None:
        """What it sent, where that is suspect."""
        return self._reported.claim

    @property
    def begun(self) -> bool:
        """Whether it is under way: it is meaningful, or its body is one that says nothing before its end. A role, nulls
        and signs of life are no answer yet.
        """
        return self.meaningful or self._whole is not None

    @property
    def relayed_bytes(self) -> int:
        """UTF-8 bytes of text, reasoning and arguments read so far, or until it was abandoned: what an estimate counts.

        All of them have been handed out if client and upstream both stream; else none before `final`.
        """
        if self.abandoned:
            return self._wanted_bytes
        total = 0
        for choice in self._choices.values():
            total += choice.bytes
        return max(0, total - self._echoed) if self._echoed else total

    @property
    def calls(self) -> int:
        """How many calls of tools have begun."""
        return sum(choice.calls for choice in self._choices.values())

    @property
    def reasoning_bytes(self) -> int:
        """How many of them are reasoning."""
        total = 0
        for choice in self._choices.values():
            total += choice.reasoning_bytes
        return total

    @property
    def counted(self) -> bool:
        """Whether `usage` counts the whole answer: nothing more was to come when it did."""
        return self.usage is not None and self._all_came

    @property
    def counted_as_nothing(self) -> bool:
        """Whether the upstream said that it read nothing and wrote nothing, and the whole answer has nothing in it."""
        return bool(self._choices) and self._reported.nothing and self._all_came and self.empty

    @property
    def empty(self) -> bool:
        """Whether nothing was written so far: no text, thought, call, picture or sound, shown or not."""
        return all(choice.empty for choice in self._choices.values())

    @property
    def _all_came(self) -> bool:
        return (self.complete and not self._cut_short) or all(choice.over for choice in self._choices.values())

    @property
    def unread(self) -> int:
        """Bytes that wait for the rest of their event or body. Work on them may take its time."""
        if self._whole is not None:
            return len(self._whole)
        return 0 if self._events is None else self._events.pending

    @property
    def kept(self) -> int:
        """Bytes that it keeps until its end: those, and what goes out only then."""
        if self._whole is not None:
            return len(self._whole) + self._held.bytes
        return self._held.bytes if self._events is None else self._held.bytes + self._events.pending

    @property
    def unread_body(self) -> int:
        """Bytes of a whole body, which says nothing before its end."""
        return 0 if self._whole is None else len(self._whole)

    @property
    def said(self) -> str:
        """The text so far, if it was to be kept and the answer is one choice of plain text; else empty."""
        return self._choices[0].text if list(self._choices) == [0] else ""

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
            is_json, data = opening(self._opening + data)
            if is_json is None:
                self._opening = data
                return []
            self._opening = b""
            if is_json:
                self._whole = bytearray()
            else:
                self._events = sse.EventReader(self._most_bytes)
        if self._whole is not None:
            self._whole += data
            if self.abandoned:
                raise self.abandoned
            if len(self._whole) > self._most_bytes:
                raise self._too_large(f"the body is longer than {self._most_bytes} bytes")
            return []
        assert self._events is not None
        out: list[bytes] = []
        try:
            self._take(self._events.feed(data), out)
            if out and not self.meaningful:  # Nothing goes out yet.
                self._held.add_bytes(sum(map(len, out)))
        except UpstreamFault as error:
            fault = error
        except sse.EventTooLong as error:
            fault = self._too_large(str(error))
        except ValueError as error:
            fault = UpstreamFault(Fault.INVALID_RESPONSE, str(error), unreadable=True)
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
            body = bytes(self._whole)
            self._whole.clear()
            self._read_whole(body)
            return
        if self._events is not None:
            try:
                self._read_tail(self._events.close())
            except sse.EventTooLong as error:
                raise self._too_large(str(error)) from None
            except ValueError as error:  # inside a frame, or behind what is none
                kind = Fault.TRUNCATED if self._events.pending else Fault.INVALID_RESPONSE
                raise UpstreamFault(kind, str(error), unreadable=kind is Fault.INVALID_RESPONSE) from None
        self._read_rest()
        if self._choices and any(choice.finish is None for choice in self._choices.values()):
            raise UpstreamFault(Fault.TRUNCATED, "the stream ended without a finish reason")
        self._done()

    def conclude(self) -> None:
        """Nothing more is wanted of a `stopped` answer: it is whole as it is."""
        if not self.complete:
            self._read_rest()
            self._cut_short = True
            self._done()

    def abandon(self, reason: GatewayError) -> bool:
        """Nobody wants it any more, for a `reason`: nothing of it is kept, and what follows is only counted.

        False: what is kept is needed to read on, as of a whole body. Of one that only begins `feed` raises the reason.
        """
        if self.abandoned or self._whole is not None or self.unread > LONG:
            return False
        self._wanted_bytes = self.relayed_bytes
        self.abandoned, self.stopped, self._held = reason, True, Held()
        self._ending.late.clear()
        self._body = Body(self._ours, self._held)
        for choice in self._choices.values():
            choice.abandon()
        return True

    def set_usage(self, tokens: Tokens) -> None:
        """Show these counts, which are what is billed; where the upstream's own are, they are shown as it sent them.
        `usage` stays as it was.
        """
        self._ending.billed = tokens

    def set_cost(self, dollars: Decimal | None) -> None:
        """What the tenant is charged, for a client that asked (`usage.include`). None: unknown, so not shown."""
        self._ending.cost = dollars

    def final(self) -> bytes:
        """The terminal part, after `end`: the closing events of a stream, or the whole JSON body."""
        usage = self._ending.usage(self._reported, self.reasoning_bytes)
        choices = [choice for _, choice in sorted(self._choices.items())]
        if self._passing is not None and (self._streams or self._sent is not None):
            return self._passing.whole(self._sent, usage) if self._sent is not None else self._passing.final(usage)
        if self._streams:
            return self._ending.written(self._writer, choices, usage)
        answer = self._answer or self._body.whole(choices)
        if usage:
            answer["usage"] = usage
        return self._writer.whole(answer)

    def error_event(self, error: GatewayError, request_id: str) -> bytes:
        """How the stream tells that it failed; nothing follows."""
        teller = self._writer if self._passing is None else self._passing
        return teller.error_event(error, self._dialect, request_id)

    def _done(self) -> None:
        """The upstream said that it is done, maybe without saying why, or nothing more is wanted of it."""
        if not self._choices:
            raise UpstreamFault(
                Fault.INVALID_RESPONSE,
                "the answer is empty: it has no choices",
                message="The provider's answer was empty.",
                unreadable=self._events is not None and not self._seen,
            )
        at_cap = False
        if self._output_cap is not None and len(self._choices) == 1 and (usage := self.usage) is not None:
            at_cap = usage.completion >= self._output_cap * self._request.n and not self.usage_suspect
        for choice in self._choices.values():
            if shown := choice.tail():
                if self._streams:
                    self._ending.late.append(self._frame(choice.envelope | self._ours | {"choices": [shown]}))
                else:
                    choice.draw(shown)
            choice.conclude(at_cap)
        self.meaningful = self.complete = True

    def _take(self, events: list[sse.Event], out: list[bytes]) -> None:
        self._seen = self._seen or bool(events)
        source, stops = self._source, self._manner.stops
        for name, payload in events:
            if self.complete:
                return
            chunk = data_of.of_event(name, payload)
            if type(chunk) is not dict:
                self._no_chunk(chunk)
            elif source is None:
                self._read(name, chunk, payload, out)
            else:
                self._translate(source, name, chunk, payload, out)
            if stops and not self.stopped:
                self.stopped = self._all_stopped()

    def _no_chunk(self, what: object) -> None:
        if what is data_of.DONE:
            self._read_rest()
            self._done()
        self.skipped += what is data_of.COMMENT

    def _translate(self, source: Source, name: bytes, chunk: dict[str, Any], payload: bytes, out: list[bytes]) -> None:
        """Takes an event of another protocol."""
        called, before = name.decode("utf-8", "replace"), self.relayed_bytes
        for translated in source.event(called, chunk):
            self._read(b"", translated, payload, out)
        if self.relayed_bytes == before:
            self._held.add_bytes(A_PIECE)  # it says nothing, and may leave something behind in the source
        if self._passing is not None and self._streams and not self.stopped:
            if told := self._passing.event(called, chunk, payload):
                out.append(told)
            else:
                self._held.add_bytes(len(payload))
        if source.complete:
            self._done()

    def _read(self, name: bytes, chunk: dict[str, Any], payload: bytes, out: list[bytes]) -> None:
        """Takes an event of this protocol that was read from `payload`."""
        if (name or "error" in chunk or "choices" not in chunk) and not self._is_chunk(name, chunk, payload, out):
            return
        shown = self._chunk(chunk, payload)
        if shown is None:
            return
        if not self._streams:
            self._body.draw(shown, self._choices)
        elif len(choices := shown["choices"]) < 2 or len({choice["index"] for choice in choices}) == len(choices):
            if frame := self._frame(shown):
                out.append(frame)
        else:  # Two pieces of one choice; many clients read only the first.
            out += filter(None, [self._frame(shown | {"choices": [choice]}) for choice in choices])

    def _is_chunk(self, name: bytes, event: dict[str, Any], payload: bytes, out: list[bytes]) -> bool:
        """Whether an event is one. Of others a ping is dropped, any other passes as it is. Raises `UpstreamFault` for
        an error.
        """
        failure = event.get("error")
        if failure or name == b"error" or (failure is not None and "choices" not in event):
            raise fault_in_answer(failure or event, payload)
        if "choices" in event or "usage" in event:
            return True
        if name in _PINGS or event.get("type") == "ping":
            self.skipped += 1
        elif self._streams and not self.stopped and (frame := self._writer.foreign(name, event)):
            out.append(frame)
        return False

    def _chunk(self, chunk: dict[str, Any], payload: bytes) -> dict[str, Any] | None:
        """The chunk as the client sees it at once, or None if all of it is held back."""
        counted = self._reported.take(chunk, payload if self._source is None else None)
        if counted or not self.upstream_id:
            self._note_id(chunk)
        choices = chunk.get("choices")
        chunk.update(self._ours)
        if not choices:
            chunk["choices"] = []
            if counted:
                self._ending.beside_usage = chunk
            return None if counted or chunk.keys() <= ENVELOPE else chunk
        kept = []
        for sent in choices if type(choices) is list and len(choices) == 1 else listed(choices):
            index = index_of(sent)
            state = self._choices.get(index)
            if state is None:
                state = self._choices[index] = Choice(index, self._manner, self._held)
                state.stopped = self.abandoned is not None
            shown = state.take(sent, chunk)
            if state.meaningful:
                self.meaningful = True
            if shown is not None:
                kept.append(shown)
        chunk["choices"] = kept
        return chunk if kept else None

    def _all_stopped(self) -> bool:
        """Whether each choice the client asked for has met one of its stop sequences."""
        stopped = sum(choice.stopped for choice in self._choices.values())
        return stopped == len(self._choices) >= self._request.n

    def _note_id(self, answer: dict[str, Any]) -> None:
        id, tier = answer.get("id"), answer.get("service_tier")
        if type(id) is str and not self.upstream_id:
            self.upstream_id = id.replace("\0", "")[:MAX_ID]
        if type(tier) is str:
            self.tier = tier.replace("\0", "")[:MAX_TIER]

    def _read_tail(self, events: list[sse.Event]) -> None:
        """An event without its blank line: whole, or the torn end of a stream that broke off."""
        try:
            self._take(events, self._ending.late)
        except UpstreamFault as fault:
            if fault.kind is not Fault.INVALID_RESPONSE:
                raise
            if not self._choices or any(choice.finish is None for choice in self._choices.values()):
                raise UpstreamFault(Fault.TRUNCATED, "the stream ended inside an event") from None

    def _read_rest(self) -> None:
        """What the source of another protocol has held back."""
        for chunk in self._source.rest() if self._source is not None else ():
            self._read(b"", chunk, b"", self._ending.late)

    def _read_whole(self, body: bytes) -> None:
        answer = data_of.of_body(body)
        if self._source is not None:
            if self._streams:  # Nothing passes as it came.
                self._passing, self._frame = None, self._writer.chunk
            else:
                self._sent = answer if self._passing is not None else None
            answer = self._source.whole(answer)
        self._reported.take(answer, body if self._source is None else None)
        if answer.get("error") or answer.get("object") == "error":
            raise fault_in_answer(answer.get("error") or answer, body)
        choices = listed(answer.get("choices"))
        if not choices:
            raise UpstreamFault(Fault.INVALID_RESPONSE, "the answer has no choices")
        self._note_id(answer)
        answer.update(self._ours)
        answer["choices"] = choices = one_an_index(choices, self._request.n)
        for sent in choices:
            choice = self._choices[sent["index"]] = Choice(sent["index"], self._manner, self._held)
            choice.take_whole(sent)
            if self._streams:
                for part in choice.in_chunks(sent, answer):
                    self._ending.late.append(self._frame(answer | {"choices": [part]}))
        self._done()
        for sent in choices:
            self._choices[sent["index"]].finish_whole(sent)
        self._answer = answer

    def _too_large(self, detail: str) -> UpstreamFault:
        message = f"The provider sent a piece of more than {self._most_bytes} bytes."
        return UpstreamFault(Fault.INVALID_RESPONSE, detail, message=message, unreadable=True)


def _unsaid(chunk: dict[str, Any]) -> bytes:
    """What a chunk says is told by the events that it was read from."""
    return b""
