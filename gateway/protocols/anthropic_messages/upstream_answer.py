"""A provider's answer in this protocol, as chunks or a completion of the chat form.

Blocks become deltas: text `content`, thoughts `reasoning` with entries of `reasoning_details` (the text as it comes,
then the signature), calls `tool_calls`, numbered as calls and not as blocks. What a provider's own tools were given and
gave is not shown; what it cited is, as annotations. Counts are put together by `usage`. The words of why it ended, the
numbers and the rest are read where all chat answers are (`openai_chat.answer`).
"""

from typing import Any

from gateway.protocols.anthropic_messages.faults import fault_in_answer
from gateway.protocols.anthropic_messages.forms.ends import DETAILS
from gateway.protocols.anthropic_messages.forms.usage import Counts
from gateway.protocols.anthropic_messages.upstream_request import Reading
from gateway.protocols.openai_chat.answer.choice import MATCHED
from gateway.protocols.openai_chat.answer.reasoning import join
from gateway.protocols.openai_chat.request.parts import CLAUDE
from gateway.wire import strict_json
from gateway.wire.errors import UpstreamFault
from gateway.wire.sse import MAX_EVENT
from routing.health.faults import Fault

MAX_BLOCKS = 4_096  # that one answer may have
_ORDINARY = Reading()

Chunk = dict[str, Any]


class UpstreamAnswer:
    """Takes the events of one stream, or one whole message.

    `complete`: the provider said that it is done.
    """

    __slots__ = (
        "_begun",
        "_begun_blocks",
        "_blocks",
        "_calls",
        "_counts",
        "_id",
        "_model",
        "_reading",
        "_thoughts",
        "_waiting",
        "complete",
    )

    def __init__(self, reading: Reading = _ORDINARY) -> None:
        self.complete = self._begun = False
        self._reading = reading
        self._blocks: dict[int, _Block] = {}
        self._calls = self._thoughts = self._begun_blocks = self._waiting = 0
        self._counts = Counts()
        self._id = self._model = ""

    def event(self, name: str, data: dict[str, Any]) -> list[Chunk]:
        """The chunks of one event; none for what shows nothing. Raises `UpstreamFault` for one that tells of a failure.

        `name` may be empty: an event says itself what it is.
        """
        kind = data.get("type") or name
        if kind == "content_block_delta":
            return self._delta(self._block(data.get("index")), _object(data.get("delta")))
        if kind == "content_block_start":
            return self._start(data.get("index"), _object(data.get("content_block")))
        if kind == "content_block_stop":
            return self._stop(self._blocks.pop(_index(data.get("index")), None))
        if kind == "message_start":
            return self._begin(_object(data.get("message")))
        if kind == "message_delta":
            return self._end(_object(data.get("delta")), data.get("usage"))
        if kind == "message_stop":
            self.complete = True
        elif kind == "error":
            raise fault_in_answer(data)
        return []  # a ping, or what is newer than this

    def whole(self, message: dict[str, Any]) -> dict[str, Any]:
        """A message as a completion. Raises `UpstreamFault`."""
        if message.get("type") == "error" or type(message.get("content")) is not list:
            if message.get("error"):
                raise fault_in_answer(message)
            raise UpstreamFault(Fault.INVALID_RESPONSE, "a message without content")
        deltas = [chunk["choices"][0]["delta"] for chunk in self._begin({**message, "content": []})]
        for at, block in enumerate(message["content"]):
            block = _object(block)
            for chunk in (*self._start(at, block), *self._whole_block(at, block), *self._stop(self._blocks.pop(at))):
                deltas.append(chunk["choices"][0]["delta"])
        (closing,) = self._end(message, None)
        self.complete = True
        made = {"id": self._id, "object": "chat.completion", "model": self._model, "usage": closing["usage"]}
        if "service_tier" in closing:
            made["service_tier"] = closing["service_tier"]
        choice = closing["choices"][0]
        del choice["delta"]
        return {**made, "choices": [{**choice, "message": _joined(deltas)}]}

    def _begin(self, message: dict[str, Any]) -> list[Chunk]:
        if self._begun:  # some servers begin twice
            return []
        self._begun = True
        self._id, self._model = _text(message.get("id")), _text(message.get("model"))
        self._counts.take(message.get("usage"))
        chunk = self._chunk({"role": "assistant", "content": ""})
        if (usage := self._counts.chat()) is not None:
            chunk["usage"] = usage
        return [chunk]

    def _start(self, index: Any, sent: dict[str, Any]) -> list[Chunk]:
        kind = sent.get("type")
        block = self._new(index, kind if type(kind) is str else "")
        if kind == "tool_use":
            return self._start_call(block, sent)
        if kind == "thinking":
            block.number = self._thoughts
            self._thoughts += 1
        elif kind == "redacted_thinking":
            entry = {"type": "reasoning.encrypted", "data": sent.get("data"), "format": CLAUDE, "index": self._thoughts}
            self._thoughts += 1
            return [self._chunk({"reasoning_details": [entry]})]
        elif kind == "text" and sent.get("text"):
            return self._delta(block, {"type": "text_delta", "text": sent["text"]})
        return []

    def _start_call(self, block: "_Block", sent: dict[str, Any]) -> list[Chunk]:
        name = _text(sent.get("name"))
        if type(sent.get("input")) is dict and sent["input"]:
            block.given = strict_json.dumps(sent["input"]).decode()
        if name == self._reading.answer_tool:
            block.kind = "answer"
            return []
        block.number = self._calls
        self._calls += 1
        call: dict[str, Any] = {"index": block.number, "id": _text(sent.get("id")), "type": "function"}
        if name in self._reading.custom_tools:
            block.kind = "custom"
            return [self._chunk({"tool_calls": [{**call, "type": "custom", "custom": {"name": name, "input": ""}}]})]
        return [self._chunk({"tool_calls": [{**call, "function": {"name": name, "arguments": ""}}]})]

    def _delta(self, block: "_Block", delta: dict[str, Any]) -> list[Chunk]:
        kind = delta.get("type")
        if kind == "text_delta":
            return [self._chunk({"content": _text(delta.get("text"))})]
        if kind == "thinking_delta":
            if not (text := _text(delta.get("thinking"))):
                return []
            return [self._chunk({"reasoning": text, "reasoning_details": [_thought(block.number, "text", text)]})]
        if kind == "signature_delta":
            entry = _thought(block.number, "signature", _text(delta.get("signature")))
            return [self._chunk({"reasoning_details": [entry]})]
        if kind == "input_json_delta":
            return self._input(block, _text(delta.get("partial_json")))
        if kind == "citations_delta":
            return [self._chunk({"annotations": [_annotation(_object(delta.get("citation")))]})]
        return []

    def _input(self, block: "_Block", piece: str) -> list[Chunk]:
        """A piece of what a tool is given."""
        if not piece:
            return []
        block.begun = True
        if block.kind == "custom":  # Its text is inside the JSON, so it waits.
            block.pieces.append(piece)
            self._waiting += len(piece)
            if self._waiting > MAX_EVENT:
                raise UpstreamFault(
                    Fault.INVALID_RESPONSE, f"more than {MAX_EVENT} characters for a tool", unreadable=True
                )
            return []
        if block.kind == "answer":
            return [self._chunk({"content": piece})]
        if block.kind != "tool_use":  # of a tool of the provider's own
            return []
        return [self._chunk({"tool_calls": [{"index": block.number, "function": {"arguments": piece}}]})]

    def _whole_block(self, index: int, sent: dict[str, Any]) -> list[Chunk]:
        """What would have come as deltas, of a block that is whole."""
        block, made = self._block(index), []
        if sent.get("type") == "thinking":
            made += self._delta(block, {"type": "thinking_delta", "thinking": sent.get("thinking")})
            if sent.get("signature"):
                made += self._delta(block, {"type": "signature_delta", "signature": sent["signature"]})
        for citation in sent.get("citations") or () if sent.get("type") == "text" else ():
            made += self._delta(block, {"type": "citations_delta", "citation": citation})
        return made

    def _stop(self, block: "_Block | None") -> list[Chunk]:
        """Some servers give a call's input with its beginning, and none give one that is empty."""
        if block is None:
            return []
        if not block.begun and block.kind in ("tool_use", "answer", "custom"):
            return self._stopped_late(block, self._input(block, block.given or "{}"))
        return self._stopped_late(block, [])

    def _stopped_late(self, block: "_Block", before: list[Chunk]) -> list[Chunk]:
        if block.kind != "custom":
            return before
        given = "".join(block.pieces)
        try:
            value = strict_json.loads(given.encode("utf-8", "replace"))
        except strict_json.BadJson:
            value = None
        inner = value.get("input") if type(value) is dict else None
        text = inner if type(inner) is str else given
        return [self._chunk({"tool_calls": [{"index": block.number, "custom": {"input": text}}]})]

    def _end(self, delta: dict[str, Any], usage: Any) -> list[Chunk]:
        self._counts.take(usage)
        reason, sequence = delta.get("stop_reason"), delta.get("stop_sequence")
        if reason == "tool_use" and not self._calls and self._reading.answer_tool is not None:
            reason = "stop"
        chunk = self._chunk({}, reason)
        choice = chunk["choices"][0]
        if type(sequence) is str:
            choice[MATCHED] = sequence
        if type(delta.get(DETAILS)) is dict:
            choice[DETAILS] = delta[DETAILS]
        chunk["usage"] = self._counts.chat()
        if self._counts.tier:
            chunk["service_tier"] = self._counts.tier
        return [chunk]

    def _block(self, index: Any) -> "_Block":
        """The block of this index; one that was never begun is text, as nothing else can do without a beginning."""
        known = self._blocks.get(_index(index))
        return self._new(index, "text") if known is None else known

    def _new(self, index: Any, kind: str) -> "_Block":
        self._begun_blocks += 1
        if self._begun_blocks > MAX_BLOCKS:
            raise UpstreamFault(Fault.INVALID_RESPONSE, f"more than {MAX_BLOCKS} blocks", unreadable=True)
        block = self._blocks[_index(index)] = _Block(kind)
        return block

    def _chunk(self, delta: dict[str, Any], finish: Any = None) -> Chunk:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        return {"id": self._id, "object": "chat.completion.chunk", "model": self._model, "choices": choices}


class _Block:
    """- `kind`: its type; `answer`, `custom`: a call of such a tool
    - `number`: of a call or a thought among its like
    - `given`: what a call's beginning has of its input; `begun`: more came; `pieces`: as far as it waits
    """

    __slots__ = ("begun", "given", "kind", "number", "pieces")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.number = 0
        self.given = ""
        self.begun = False
        self.pieces: list[str] = []


def _thought(index: int, field: str, value: str) -> dict[str, Any]:
    return {"type": "reasoning.text", field: value, "format": CLAUDE, "index": index}


def _annotation(citation: dict[str, Any]) -> dict[str, Any]:
    """What was cited: a page as the chat form has it, anything else as it came."""
    if not citation.get("url"):
        return citation
    page = {"url": citation["url"], "title": citation.get("title") or "", "content": citation.get("cited_text") or ""}
    return {"type": "url_citation", "url_citation": page}


def _joined(deltas: list[dict[str, Any]]) -> dict[str, Any]:
    """A whole message of its deltas."""
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    calls: list[dict[str, Any]] = []
    for delta in deltas:
        for call in delta.pop("tool_calls", ()):
            if call["index"] == len(calls):
                calls.append({name: value for name, value in call.items() if name != "index"})
            else:
                ((kind, inner),) = ((name, value) for name, value in call.items() if name != "index")
                for name, value in inner.items():
                    calls[call["index"]][kind][name] += value
        for name, value in delta.items():
            if name != "role" and value:
                message[name] = (message.get(name) or type(value)()) + value
    if "reasoning_details" in message:
        message["reasoning_details"] = join(message["reasoning_details"])
    return {**message, "tool_calls": calls} if calls else {**message, "content": message["content"] or ""}


def _index(value: Any) -> int:
    if type(value) is not int:
        raise UpstreamFault(Fault.INVALID_RESPONSE, "a block has no index")
    return value


def _object(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise UpstreamFault(Fault.INVALID_RESPONSE, "a part of an event is not an object")
    return value


def _text(value: Any) -> str:
    return value if type(value) is str else ""
