"""Writes an answer for a client of this protocol, from chat chunks or a chat completion as the gateway shows them.

A stream is one of events, or one JSON array where the client did not ask for events (`alt=sse`). Text and thoughts go
out as they come, a call once it is whole, since Google's arguments are an object; the end, its reason and the counts
are one last event. There is no event that says so: a stream is over when it ends, and SDKs look for the reason.
"""

from collections.abc import Iterable
from typing import Any

from gateway.protocols.google_gemini import grounding, signatures
from gateway.protocols.google_gemini.client_request import ChatForm
from gateway.protocols.google_gemini.errors import envelope
from gateway.protocols.google_gemini.finish import MALFORMED_CALL, REFUSED, gemini_finish
from gateway.protocols.google_gemini.upstream.parts import by_url
from gateway.protocols.google_gemini.usage import gemini_usage
from gateway.protocols.openai_chat.answer.content import transcript
from gateway.protocols.openai_chat.answer.reasoning import join
from gateway.wire import sse, strict_json
from gateway.wire.dialects import STANDARD, Dialect
from gateway.wire.errors import GatewayError

MAX_TOLD = 500  # characters of a call that is no JSON


class ClientAnswer:
    """One answer. Give it every chunk (`chunk`), those of the end to `final`; or the completion to `whole`.

    Where the provider speaks this protocol too, give it its events (`native`) or body (`native_whole`): they pass with
    every field they had.

    - `form`: what the client asked, `id` and `model`: what it is shown
    - `events`: the stream is one of events, else an array
    - `content_type`: of a stream
    - `keep_alive`: what may be sent while a client waits: blanks, for one of Google's SDKs takes a comment for JSON and
      another one waits behind it for ever
    """

    def __init__(self, form: ChatForm, *, id: str, model: str, events: bool = True) -> None:
        self._form = form
        self._ours = {"modelVersion": model, "responseId": id}
        self._events = events
        self._begun = False
        self._candidates: dict[int, _Candidate] = {}
        self._usage: dict[str, Any] | None = None
        self._held: list[dict[str, Any]] = []  # A provider's own events of the end.
        self.content_type = "text/event-stream" if events else "application/json"
        self.keep_alive = b"\n\n" if events else b"\n"

    def chunk(self, chunk: dict[str, Any]) -> bytes:
        """What one chat chunk comes to; empty where all of it waits."""
        candidates = []
        for choice in chunk.get("choices") or ():
            candidate = self._candidate(choice)
            if parts := candidate.take(choice.get("delta") or {}):
                candidates.append(candidate.written(parts))
        self._usage = chunk.get("usage") or self._usage
        return self._frame({"candidates": candidates}) if candidates else b""

    def final(self, chunks: Iterable[dict[str, Any]] = ()) -> bytes:
        """The chunks that were held back for the end, and the end."""
        out = [self.chunk(chunk) for chunk in chunks]
        out += [self._frame(event) for event in self._held or [self._end()]]
        return b"".join(out) + (b"" if self._events else b"]")

    def native(self, event: dict[str, Any]) -> bytes:
        """A provider's own event as the client sees it; from the first finish reason on they wait for `final`."""
        ends = any(candidate.get("finishReason") for candidate in event.get("candidates") or [{"finishReason": "none"}])
        if self._held or ends:
            self._held.append(event)
            return b""
        return self._frame(event)

    def native_whole(self, body: dict[str, Any]) -> bytes:
        """A provider's own body as the client sees it."""
        return strict_json.dumps(body | self._ours)

    def whole(self, completion: dict[str, Any]) -> bytes:
        """The body for a client that does not stream."""
        parts = {}
        for choice in completion.get("choices") or ():
            candidate = self._candidate(choice)
            parts[candidate.index] = candidate.take(choice.get("message") or {})
        self._usage = completion.get("usage")
        return strict_json.dumps(self._end(parts) | self._ours)

    def error_event(self, error: GatewayError, dialect: Dialect = STANDARD, request_id: str = "") -> bytes:
        """How a stream that has begun tells of a failure; nothing follows it.

        It is told twice, as an event and bare: the SDK in the Gemini CLI of 2026 sees no error in an event, and takes
        the end that follows for one of a model that stopped. Others stop at the first, and the bare one is no event.
        """
        told = envelope(error, self._form.told(error.param), dialect, request_id)
        payload = _line(told)
        if self._events:
            return sse.encode(payload) + payload + b"\n"
        return (b"," if self._begun else b"[") + payload + b"]"

    def _candidate(self, choice: dict[str, Any]) -> "_Candidate":
        index = choice.get("index") or 0
        candidate = self._candidates.get(index)
        if candidate is None:
            candidate = self._candidates[index] = _Candidate(index, self._form)
        candidate.note(choice)
        return candidate

    def _frame(self, event: dict[str, Any]) -> bytes:
        payload = _line(event | self._ours)
        begun, self._begun = self._begun, True
        if self._events:
            return sse.encode(payload)
        return (b",\r\n" if begun else b"[") + payload

    def _end(self, parts: dict[int, list[dict[str, Any]]] | None = None) -> dict[str, Any]:
        """The last event, or the whole body of these parts."""
        made: dict[str, Any] = {"candidates": []}
        for index, candidate in sorted(self._candidates.items()):
            made["candidates"].append(candidate.ended((parts or {}).get(index, [])))
        if self._usage:
            made["usageMetadata"] = gemini_usage(self._usage)
        return made


def _line(value: dict[str, Any]) -> bytes:
    """JSON without the two characters that are line ends to JavaScript's patterns: an SDK's event ends before them."""
    return strict_json.dumps(value).replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")


class _Candidate:
    """What has been written of one choice, and what waits: a call that is not whole, thoughts that go with the next."""

    __slots__ = (
        *("_annotations", "_calls", "_finish", "_form", "_images", "_length", "_logprobs", "_malformed", "_native"),
        *("_refused", "_signs", "_text", "_thoughts", "index"),
    )

    def __init__(self, index: int, form: ChatForm) -> None:
        self.index = index
        self._form = form
        self._calls: dict[int, _Call] = {}  # By a chat's index, in order.
        self._malformed = ""
        self._signs: dict[str, str] = {}
        self._thoughts: list[dict[str, Any]] = []  # Entries of other formats, and what has no part to be on.
        self._length = self._images = 0
        self._text: list[str] | None = [] if "web_search_options" in form.body else None
        self._annotations: list[Any] = []
        self._logprobs: list[Any] = []
        self._refused = False
        self._finish: str | None = None
        self._native: str | None = None

    def note(self, choice: dict[str, Any]) -> None:
        """Why it ended, and how probable its tokens were."""
        self._finish = choice.get("finish_reason") or self._finish
        self._native = choice.get("native_finish_reason") or self._native
        if type(logprobs := choice.get("logprobs")) is dict:
            self._logprobs += logprobs.get("content") or ()

    def take(self, delta: dict[str, Any]) -> list[dict[str, Any]]:
        """The parts of a delta, or of a whole message, that can be written."""
        if len(delta) == 1 and not self._calls and type(said := delta.get("content")) is str and said:
            return self._plain(said)  # Most chunks of most answers.
        entries = delta.get("reasoning_details") or []
        parts = self._thought(delta, entries)
        sealed = signatures.sealed(signatures.ours(delta))
        self._signs |= {entry["id"]: entry["data"] for entry in sealed if type(entry.get("id")) is str}
        self._refused = self._refused or bool(delta.get("refusal"))
        said = f"{delta.get('content') or ''}{delta.get('refusal') or ''}{transcript(delta)}"
        spans = [entry for entry in sealed if "span" in entry]
        if said or spans:
            parts += self._called() + signatures.text_parts(said, spans, self._length)
            self._plain(said)
        pictures = {entry["image"]: entry["data"] for entry in sealed if type(entry.get("image")) is int}
        parts += self._pictures(delta, pictures)
        # Parts of Google's own that a chat has no place for: code that was run, sound.
        parts += [part for part in delta.get("content_parts") or () if type(part) is dict and "type" not in part]
        for call in delta.get("tool_calls") or ():
            parts += self._take_call(call)
        self._annotations += delta.get("annotations") or ()
        return parts

    def _plain(self, said: str) -> list[dict[str, Any]]:
        self._length += len(said)
        if self._text is not None:
            self._text.append(said)
        return [{"text": said}]

    def written(self, parts: list[dict[str, Any]]) -> dict[str, Any]:
        """The candidate of an event or body."""
        return {"content": {"parts": parts, "role": "model"}, "index": self.index}

    def ended(self, parts: list[dict[str, Any]]) -> dict[str, Any]:
        """The candidate of the last event, or of a whole body whose `parts` these are."""
        parts = parts + self._called()
        if any(entry.get("signature") or entry.get("data") for entry in self._thoughts):
            parts.append({"text": "", "thoughtSignature": self._packed()})
        made = self.written(parts or [{"text": ""}])
        finish = REFUSED if self._refused and self._finish == "stop" else self._finish
        made["finishReason"] = MALFORMED_CALL if self._malformed else gemini_finish(finish, self._native)
        if self._malformed:
            made["finishMessage"] = f"Malformed function call: {self._malformed[:MAX_TOLD]}"
        if grounds := grounding.grounding_metadata(self._annotations, "".join(self._text or ())):
            made["groundingMetadata"] = grounds
        if probabilities := grounding.logprobs_result({"content": self._logprobs}):
            made["logprobsResult"] = probabilities
        return made

    def _thought(self, delta: dict[str, Any], entries: list[Any]) -> list[dict[str, Any]]:
        """Thoughts that are shown; what is signed and not shown, or of another format, waits for a part to go with."""
        shows, parts, told = self._form.shows_thoughts, [], False
        for entry in entries:
            if entry.get("format") != signatures.FORMAT:
                self._thoughts.append(entry)
            elif entry.get("type") == "reasoning.text":
                if shows:
                    thought = {"text": entry.get("text") or "", "thought": True}
                    parts.append(signatures.signed(thought, entry.get("signature")))
                    told = True
                elif entry.get("signature"):
                    self._thoughts.append(entry)
        text = delta.get("reasoning") or delta.get("reasoning_content")
        if shows and text and not told:
            parts.append({"text": text, "thought": True})
        return (self._called() + parts) if parts else parts

    def _pictures(self, delta: dict[str, Any], signed: dict[int, str]) -> list[dict[str, Any]]:
        parts = []
        for at, picture in enumerate(delta.get("images") or ()):
            image = picture.get("image_url") if type(picture) is dict else None
            url = image.get("url") if type(image) is dict else image
            if type(url) is str:
                parts.append(signatures.signed(by_url(url), signed.get(self._images + at)))
        self._images += len(parts)
        return parts

    def _take_call(self, piece: dict[str, Any]) -> list[dict[str, Any]]:
        """A piece of a call, or a whole one; gives those before it that are whole, once another begins."""
        index = piece.get("index", -1)
        call = self._calls.get(index)
        if call is not None:
            call.take(piece)
            return []
        parts = self._called(whole=True)
        self._calls[index] = call = _Call()
        call.take(piece)
        return parts + (self._called() if index < 0 else [])  # of a whole message

    def _called(self, whole: bool = False) -> list[dict[str, Any]]:
        """The calls that have been waited for, `whole`: up to the first that may go on.

        One that no client could read is told at the end.
        """
        parts = []
        for index, call in list(self._calls.items()):
            if whole and not call.seems_whole():
                break
            del self._calls[index]
            name = self._form.names.back(call.name)
            if (args := call.read()) is None:
                self._malformed = f"{name}({call.given})"
                continue
            made: dict[str, Any] = {"functionCall": {"id": call.id, "name": name, "args": args}}
            signature = call.signature or self._signs.get(call.id)
            if signature is None and self._thoughts:
                signature = self._packed()
            parts.append(signatures.signed(made, signature))
        return parts

    def _packed(self) -> str:
        thoughts, self._thoughts = self._thoughts, []
        return signatures.pack(join(thoughts))


class _Call:
    """A call while its pieces come. `given` are its arguments so far."""

    __slots__ = ("_given", "_looked", "id", "name", "signature")

    def __init__(self) -> None:
        self.id = self.name = ""
        self.signature: str | None = None
        self._given: list[str] = []
        self._looked = False

    def take(self, piece: dict[str, Any]) -> None:
        """One piece; the first names the call."""
        inner = piece.get("function") or {}
        self.id = piece.get("id") or self.id
        self.name = inner.get("name") or self.name
        self.signature = signatures.of_call(piece) or self.signature
        self._given.append(inner.get("arguments") or "")

    @property
    def given(self) -> str:
        return "".join(self._given)

    def seems_whole(self) -> bool:
        """Whether its arguments are an object by now. Looked at once, since all else would not be linear."""
        if self._looked or not any(self._given):
            return False
        self._looked = True
        return self.read() is not None

    def read(self) -> dict[str, Any] | None:
        """Its arguments; None: they are no object."""
        if not (given := self.given).strip():
            return {}
        try:
            args = strict_json.loads(given.encode("utf-8", "replace"))
        except strict_json.BadJson:
            return None
        return args if type(args) is dict else None
