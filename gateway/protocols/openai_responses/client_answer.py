"""An answer, as chunks of the chat form come, written for a client of the Responses protocol.

The events are those that the official SDK's state machine expects, in order: the response is created and in progress;
each item is announced, filled and done; the response is completed, incomplete or failed. Each is numbered, and names
the item it speaks of by id and place. Thoughts and words come one item after the other; calls stay open until the end,
since fragments of several may alternate. Who asks for a summary of the thoughts reads no others, so that is what all
of them are told as.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from gateway.protocols.openai_chat.answer.content import transcript
from gateway.protocols.openai_chat.answer.message import deltas
from gateway.protocols.openai_responses import carried
from gateway.protocols.openai_responses.output_items import Call, Event, Events, Message, Picture, Thought
from gateway.protocols.openai_responses.response import ended, opened, usage_of
from gateway.protocols.openai_responses.thoughts import FORMAT
from gateway.protocols.openai_responses.tools import LOCAL_SHELL, client_tools
from gateway.wire import strict_json
from gateway.wire.dialects import STANDARD, Dialect
from gateway.wire.errors import GatewayError

Open: TypeAlias = Message | Thought | Call | Picture
_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "local_shell_call": "lsh",
    "image_generation_call": "ig",
}

_KINDS = {"function": "function_call", "custom": "custom_tool_call", LOCAL_SHELL: "local_shell_call"}
# What our codes are called here, where clients act on them.
_CODES = {
    "upstream_rate_limited": "rate_limit_exceeded",
    "upstream_exhausted": "rate_limit_exceeded",
    "upstream_overloaded": "server_is_overloaded",
}


class AnswerWriter:
    """Writes one answer. Give it every `chunk`, settle, then send `final`.

    - `asked`: the client's body, which the answer repeats in part
    - `id`, `created` (Unix seconds), `model`: the gateway's own
    - `carries`: an item that carries the others ends the answer, see `carried`
    """

    def __init__(self, asked: Mapping[str, Any], *, id: str, created: int, model: str, carries: bool = False) -> None:
        self._id = id
        self._carries = carries
        self._carrier: dict[str, Any] | None = None
        self._response = opened(asked, id=id, created=created, model=model)
        self._tools = client_tools(asked.get("tools"))
        wish = asked.get("reasoning") or {}
        self._sums = (wish.get("summary") or wish.get("generate_summary") or "none") != "none"
        self._number = 0
        self._begun = False
        self._items: list[Open] = []
        self._current: Message | Thought | None = None
        self._last_message: Message | None = None
        self._calls: dict[int, Call] = {}
        self._finish: str | None = None

    def chunk(self, chunk: Mapping[str, Any]) -> bytes:
        """The frames of one chunk; what it says of the end is kept for `final`."""
        events: list[Event] = []
        for choice in chunk.get("choices") or ():
            if choice["index"] == 0:
                self._finish = choice.get("finish_reason") or self._finish
                events += self._delta(choice.get("delta") or {}, choice.get("logprobs"))
        if usage := chunk.get("usage"):
            self._response["usage"] = usage_of(usage)
        if type(tier := chunk.get("service_tier")) is str:
            self._response["service_tier"] = tier
        return self._opening() + self._frames(events)

    def final(self) -> bytes:
        """What ends the stream: the ends of what is open, then the response as a whole."""
        self._response |= ended(self._finish)
        status = self._response["status"]
        left = [*([self._current] if self._current else ()), *self._calls.values()]
        events = [event for open_ in left for event in self._end(open_, status if open_ is left[-1] else "completed")]
        told = self._opening() + self._frames(events)
        if self._carries and (carrier := carried.carrier(self.output)) is not None:
            told += carried.frames(carrier, len(self._items), self._number)
            self._number += 2
            self._carrier = carrier
        return told + self._frames([(f"response.{status}", self._whole())])

    def whole(self, completion: Mapping[str, Any]) -> bytes:
        """A chat completion as the body of a client that does not stream."""
        choice = completion["choices"][0]
        message = choice["message"]
        for delta in deltas(message):
            self.chunk({"choices": [{"index": 0, "delta": delta, "logprobs": choice.get("logprobs")}]})
        end = {"delta": {"annotations": message.get("annotations")}, "finish_reason": choice["finish_reason"]}
        self.chunk({**completion, "choices": [end | {"index": 0}]})
        self.final()
        return strict_json.dumps(self._response)

    def error_event(self, error: GatewayError, dialect: Dialect = STANDARD, request_id: str = "") -> bytes:
        """What ends a stream that failed after it began; what there was of the answer is in it."""
        for item in self.output:
            if item["status"] == "in_progress":
                item["status"] = "incomplete"
        self._response["output"] = self.output
        return self._opening() + failed(self._response, error, self._number, dialect, request_id)

    @property
    def output(self) -> list[dict[str, Any]]:
        """The items so far."""
        return [open_.item for open_ in self._items]

    def _delta(self, delta: Mapping[str, Any], logprobs: Any) -> Events:
        """What a provider put into it may be of any type but where the reader of chat answers has seen to it."""
        if len(delta) == 1 and logprobs is None and type(text := delta.get("content")) is str and text:
            yield from self._say("output_text", text, [])  # Most chunks of most answers.
            return
        if thoughts := _objects(delta.get("reasoning_details")):
            for entry in thoughts:
                yield from self._think(entry)
        elif thought := _text(delta, "reasoning") or _text(delta, "reasoning_content"):
            yield from self._think({"type": "reasoning.text", "text": thought, "index": 0})
        if text := _text(delta, "content"):
            yield from self._say("output_text", text, _tokens(_object(logprobs).get("content")))
        if refusal := _text(delta, "refusal"):
            yield from self._say("refusal", refusal, [])
        if spoken := transcript(delta):
            yield from self._say("output_text", spoken, [])
        for picture in _objects(delta.get("images")):
            yield from self._show(picture)
        for call in delta.get("tool_calls") or ():
            yield from self._call(call)
        if annotations := _objects(delta.get("annotations")):
            if self._last_message is None:
                yield from self._say("output_text", "", [])
            if self._last_message is not None:
                for name, event in self._last_message.annotate([*map(_flat, annotations)]):
                    yield name, self._place(self._last_message) | event

    def _think(self, entry: dict[str, Any]) -> Events:
        current, id = self._current, _text(entry, "id") if entry.get("format") == FORMAT else ""
        if type(current) is not Thought or (id and current.over and current.item["id"] != id):
            yield from self._close()
            current = Thought(id or self._new_id("reasoning"), theirs=bool(id), sums=self._sums)
            self._current = current
            yield from self._add(current)
        for name, event in current.think(entry):
            yield name, self._place(current) | event

    def _say(self, kind: str, text: str, logprobs: list[Any]) -> Events:
        current = self._current
        if type(current) is not Message:
            yield from self._close()
            self._current = self._last_message = current = Message(self._new_id("message"))
            yield from self._add(current)
        for name, event in current.say(kind, text, logprobs):
            yield name, self._place(current) | event

    def _show(self, picture: Mapping[str, Any]) -> Events:
        url = picture.get("image_url")
        url = url.get("url") if type(url) is dict else url
        if type(url) is not str:
            return
        yield from self._close()
        shown = Picture(self._new_id("image_generation_call"), url)
        yield from self._add(shown)
        yield from self._end(shown)

    def _call(self, fragment: dict[str, Any]) -> Events:
        call = self._calls.get(fragment["index"])
        if call is None:
            yield from self._close()
            call = self._calls[fragment["index"]] = self._begun_call(fragment)
            yield from self._add(call)
        for name, event in call.give(fragment):
            yield name, self._place(call) | event

    def _begun_call(self, fragment: dict[str, Any]) -> Call:
        called = (fragment.get("custom") or fragment.get("function") or {}).get("name") or ""
        kind, name, namespace = self._tools.get(called, ("function", called, None))
        kind = _KINDS["custom" if "custom" in fragment else kind]
        return Call(self._new_id(kind), fragment, kind, name, namespace)

    def _add(self, open_: Open) -> Events:
        self._items.append(open_)
        yield "response.output_item.added", {"output_index": len(self._items) - 1, "item": _copy(open_.item)}

    def _close(self) -> Events:
        if self._current is not None:
            current, self._current = self._current, None
            yield from self._end(current)

    def _end(self, open_: Open, status: str = "completed") -> Events:
        for name, event in open_.end():
            yield name, self._place(open_) | event
        open_.item["status"] = status
        yield "response.output_item.done", {"output_index": self._items.index(open_), "item": _copy(open_.item)}

    def _place(self, open_: Open) -> dict[str, Any]:
        at = len(self._items) - 1 if self._items[-1] is open_ else self._items.index(open_)
        return {"item_id": open_.item["id"], "output_index": at}

    def _new_id(self, kind: str) -> str:
        return f"{_PREFIXES[kind]}_{self._id}_{len(self._items)}"

    def _opening(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        begun = {"response": self._response | {"status": "in_progress", "error": None, "usage": None, "output": []}}
        return self._frames([("response.created", begun), ("response.in_progress", begun)])

    def _whole(self) -> dict[str, Any]:
        self._response["output"] = self.output + ([self._carrier] if self._carrier is not None else [])
        return {"response": self._response}

    def _frames(self, events: Iterable[Event]) -> bytes:
        frames = []
        for name, event in events:
            frames.append(_frame(name, self._number, event))
            self._number += 1
        return b"".join(frames)


def failed(response: Mapping[str, Any], error: GatewayError, number: int, dialect: Dialect, request_id: str) -> bytes:
    """The two events that end a stream, from `number` on: SDKs raise on the first, coding agents read the second."""
    told = error.body(dialect, request_id)["error"]
    code = _CODES.get(error.code or "") or (error.code if error.status < 500 else "server_error")
    said = {"code": code, "message": told["message"], "param": error.param, "error": told}
    last = {**response, "status": "failed", "error": {"code": code, "message": told["message"]}}
    return _frame("error", number, said) + _frame("response.failed", number + 1, {"response": last})


def _frame(name: str, number: int, event: Mapping[str, Any]) -> bytes:
    made = {"type": name, "sequence_number": number, **event}
    return b"event: %b\ndata: %b\n\n" % (name.encode(), strict_json.dumps(made))


def _copy(item: dict[str, Any]) -> dict[str, Any]:
    """An item as it stands; its lists go on."""
    return {name: [*value] if type(value) is list else value for name, value in item.items()}


def _text(value: Mapping[str, Any], name: str) -> str:
    text = value.get(name)
    return text if type(text) is str else ""


def _object(value: Any) -> dict[str, Any]:
    return value if type(value) is dict else {}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [inner for inner in value if type(inner) is dict] if type(value) is list else []


def _tokens(logprobs: Any) -> list[dict[str, Any]]:
    """Log probabilities of tokens. What may be null in chat is an empty list here."""
    return [
        _with_bytes(token) | {"top_logprobs": [*map(_with_bytes, _objects(token.get("top_logprobs")))]}
        for token in _objects(logprobs)
    ]


def _with_bytes(token: dict[str, Any]) -> dict[str, Any]:
    return token | {"bytes": token.get("bytes") or []}


def _flat(annotation: dict[str, Any]) -> dict[str, Any]:
    """A citation, one level up."""
    inner = annotation.get("url_citation")
    return {"type": "url_citation"} | inner if type(inner) is dict else annotation
