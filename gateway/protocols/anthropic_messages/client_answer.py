"""An answer of the chat form, written for a client of this protocol.

What its official SDKs put together, and so what must come in this order: `message_start` once; each block begun,
continued and ended before the next one begins, numbered from 0; `message_delta` with the end and the counts;
`message_stop`. Chunks of the chat form may mix what belongs to several calls: then the later ones wait until the open
one is whole.

`model` is to be the name that the client asked for: Claude Code leaves signed thoughts out of its next request when an
answer names another model.
"""

from collections.abc import Mapping
from typing import Any

from gateway.protocols.anthropic_messages.forms import ends, thoughts, usage
from gateway.protocols.anthropic_messages.forms.blocks import Call, blocks, call_block, citation, picture
from gateway.protocols.openai_chat.answer.content import transcript
from gateway.wire import strict_json

PING = b'event: ping\ndata: {"type": "ping"}\n\n'


def whole(completion: dict[str, Any], names: Mapping[str, str] | None = None) -> bytes:
    """A whole completion, as our chat answers have it, as the body of a message.

    `names`: the client's names of tools by those of the chat form, where they differ.
    """
    choice = completion["choices"][0]
    message = choice["message"]
    end = ends.told(choice, refused=bool(message.get("refusal")))
    made = {**_head(completion), "content": blocks(message, names or {}), **end}
    return strict_json.dumps({**made, "usage": usage.shown(completion.get("usage") or {})})


class ClientAnswer:
    """Writes one stream. `chunk` gives frames at once; what ends the stream is kept for `final`."""

    __slots__ = (
        *("_begun", "_call", "_calls", "_choice", "_citations", "_index", "_names", "_open", "_refused"),
        *("_rest", "_usage", "_waiting"),
    )

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        """`names`: the client's names of tools by those of the chat form, where they differ."""
        self._names = names or {}
        self._begun = self._refused = False
        self._index = -1
        self._open: tuple[Any, ...] = ()  # what block is open: its kind, and which of them; empty: none
        self._rest: dict[str, Any] = {}  # of an open thought, what its signature is made of
        self._call: Call | None = None  # the open one
        self._calls: dict[int, Call] = {}  # all that have begun, by their index
        # What came for other blocks while a call was not whole, by the block.
        self._waiting: dict[tuple[Any, ...], list[Any]] = {}
        self._citations: list[dict[str, Any]] = []
        self._choice: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}

    def chunk(self, chunk: dict[str, Any]) -> bytes:
        """The frames of one chunk, as our reader of chat answers shows it; also of the last, with finish and usage."""
        out: list[bytes] = []
        if not self._begun:
            self._begun = True
            start = {**_head(chunk), "content": [], "stop_reason": None, "stop_sequence": None}
            out.append(_event("message_start", message={**start, "usage": usage.shown(chunk.get("usage") or {})}))
        if chunk.get("usage"):
            self._usage = chunk["usage"]
        for choice in chunk["choices"]:
            if choice["index"] == 0:
                self._delta(choice.get("delta") or {}, out)
                if choice.get("finish_reason"):
                    self._choice = choice
        return b"".join(out)

    def final(self) -> bytes:
        """What ends the stream: the last block, the end, the counts."""
        out: list[bytes] = []
        self._flush(out)
        if self._citations and self._open[:1] != ("text",):
            self._move(("text", -1), out)
        for one in self._citations:
            self._continue(out, type="citations_delta", citation=one)
        self._close(out)
        end = ends.told(self._choice, refused=self._refused)
        out += [_event("message_delta", delta=end, usage=usage.shown(self._usage)), _event("message_stop")]
        return b"".join(out)

    def _delta(self, delta: dict[str, Any], out: list[bytes]) -> None:
        # Once plain text was told of without entries, entries repeat it.
        tells = bool(delta.get("reasoning"))
        for entry in delta.get("reasoning_details") or ():
            if type(entry) is dict:
                field = thoughts.text_field(entry)
                key = ("thought", field, str(entry.get("index"))) if field else ("hidden",)
                self._take(key, {**entry, field: entry.get(field) if tells else ""} if field else entry, out)
        if text := delta.get("content"):
            self._take(("text", 0), text, out)
        if text := delta.get("refusal"):
            self._refused = True
            self._take(("text", 1), text, out)
        if text := transcript(delta):
            self._take(("text", 3), text, out)
        for call in delta.get("tool_calls") or ():
            self._take(("call", call["index"]), call, out)
        for image in delta.get("images") or ():
            self._take(("text", 2), picture(image), out)
        self._citations += [made for one in delta.get("annotations") or () if (made := citation(one))]

    def _take(self, key: tuple[Any, ...], piece: Any, out: list[bytes]) -> None:
        """Puts a piece where it belongs: into the open block, into one that it begins, or behind those that wait."""
        if key != self._open and self._call is not None and not self._call.whole:
            self._waiting.setdefault(key, []).append(piece)
            return
        self._write(key, piece, out)
        while self._waiting and (self._call is None or self._call.whole):
            self._write_first(out)

    def _flush(self, out: list[bytes]) -> None:
        """Nothing more comes: what waits is written, block by block."""
        while self._waiting:
            self._write_first(out)

    def _write_first(self, out: list[bytes]) -> None:
        """Writes what waits for the block that has waited longest."""
        key = next(iter(self._waiting))
        for piece in self._waiting.pop(key):
            self._write(key, piece, out)

    def _write(self, key: tuple[Any, ...], piece: Any, out: list[bytes]) -> None:
        kind = key[0]
        if kind == "text":
            self._move(key, out)
            self._continue(out, type="text_delta", text=piece)
        elif kind == "call":
            self._write_call(key, piece, out)
        elif kind == "thought":
            self._write_thought(key, piece, out)
        else:
            self._move((), out)
            self._start(thoughts.to_block(piece), out)
            self._open = key
            self._move((), out)

    def _write_thought(self, key: tuple[Any, ...], entry: dict[str, Any], out: list[bytes]) -> None:
        text = entry.get(key[1])
        if text and self._rest.get("signature"):  # What follows a signature is not covered by it.
            self._move((), out)
        self._move(key, out)
        self._rest |= {name: value for name, value in entry.items() if value is not None and name != key[1]}
        if text:
            self._continue(out, type="thinking_delta", thinking=text)

    def _write_call(self, key: tuple[Any, ...], piece: dict[str, Any], out: list[bytes]) -> None:
        call = self._calls.get(key[1])
        if call is None:
            call = self._calls[key[1]] = Call(piece, self._names)
            self._move(key, out, call_block(call, {}))
            self._call = call
        elif call is not self._call:
            return  # It was whole, and has ended: what comes now is no part of its arguments.
        if given := call.add(piece):
            self._continue(out, type="input_json_delta", partial_json=given)

    def _move(self, key: tuple[Any, ...], out: list[bytes], block: dict[str, Any] | None = None) -> None:
        """Makes the block of this key the open one; () closes it alone."""
        if key == self._open:
            return
        self._close(out)
        if not key:
            return
        if block is None:
            thought = key[0] == "thought"
            block = {"type": "thinking", "thinking": "", "signature": ""} if thought else {"type": "text", "text": ""}
        self._start(block, out)
        self._open = key

    def _start(self, block: dict[str, Any], out: list[bytes]) -> None:
        self._index += 1
        out.append(_event("content_block_start", index=self._index, content_block=block))

    def _continue(self, out: list[bytes], **delta: Any) -> None:
        out.append(_event("content_block_delta", index=self._index, delta=delta))

    def _close(self, out: list[bytes]) -> None:
        if not self._open:
            return
        if self._open[0] == "thought":
            if signature := thoughts.signature(self._rest):
                self._continue(out, type="signature_delta", signature=signature)
            self._rest = {}
        self._open, self._call = (), None
        out.append(_event("content_block_stop", index=self._index))


def _head(answer: dict[str, Any]) -> dict[str, Any]:
    return {"id": answer.get("id"), "type": "message", "role": "assistant", "model": answer.get("model")}


def _event(name: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), strict_json.dumps({"type": name, **fields}))
