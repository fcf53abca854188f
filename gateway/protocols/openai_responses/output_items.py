"""The items of an answer while they are written: each knows the events that begin, continue and end it.

An item is announced, gets its content in deltas, and is told once more as a whole. Its id never changes. What an event
says besides its place, the stream adds (`client_answer`).
"""

from collections.abc import Iterator
from typing import Any

from gateway.protocols.openai_chat.answer.reasoning import join
from gateway.protocols.openai_responses.thoughts import is_own, pack
from gateway.protocols.openai_responses.tools import shell_action
from gateway.wire import strict_json

Event = tuple[str, dict[str, Any]]
Events = Iterator[Event]


class Message:
    """Words to the user: a part of text, a part of refusal, in the order in which they begin."""

    def __init__(self, id: str) -> None:
        self.item: dict[str, Any] = {"id": id, "type": "message", "status": "in_progress", "role": "assistant"}
        self.item["content"] = []
        self._open: dict[str, Any] | None = None
        self._said: list[str] = []
        self._logprobs: list[Any] = []

    def say(self, kind: str, text: str, logprobs: list[Any]) -> Events:
        """More of a part of `kind`, `output_text` or `refusal`."""
        content = self.item["content"]
        if self._open is None or self._open["type"] != kind:
            yield from self._close()
            part = {"type": kind, "refusal": ""} if kind == "refusal" else _no_text()
            content.append(part)
            self._open = part
            yield "response.content_part.added", self._at() | {"part": {**part}}
        self._said.append(text)
        delta = self._at() | {"delta": text}
        if kind == "refusal":
            yield "response.refusal.delta", delta
        else:
            self._logprobs += logprobs
            yield "response.output_text.delta", delta | {"logprobs": logprobs}

    def annotate(self, annotations: list[dict[str, Any]]) -> Events:
        """Citations, which belong to the last part of text there is."""
        for at in range(len(self.item["content"]) - 1, -1, -1):
            part = self.item["content"][at]
            if part["type"] == "output_text":
                for annotation in annotations:
                    place = {"content_index": at, "annotation_index": len(part["annotations"])}
                    part["annotations"] = [*part["annotations"], annotation]
                    yield "response.output_text.annotation.added", place | {"annotation": annotation}
                return

    def end(self) -> Events:
        yield from self._close()

    def _close(self) -> Events:
        part, said = self._open, "".join(self._said)
        if part is None:
            return
        at = self._at()
        self._open, self._said = None, []
        if part["type"] == "refusal":
            part["refusal"] = said
            yield "response.refusal.done", at | {"refusal": said}
        else:
            part["text"], part["logprobs"], self._logprobs = said, self._logprobs, []
            yield "response.output_text.done", at | {"text": said, "logprobs": part["logprobs"]}
        yield "response.content_part.done", at | {"part": {**part}}

    def _at(self) -> dict[str, Any]:
        return {"content_index": len(self.item["content"]) - 1}


class Thought:
    """What the model thought: summaries and texts, part by part, and in the end what brings all of it back."""

    def __init__(self, id: str, *, theirs: bool, sums: bool) -> None:
        """`theirs`: the id is the provider's. `sums`: texts, too, are told as summaries."""
        self._sums = sums
        self.over = theirs  # an entry of another id belongs to another item
        self.item: dict[str, Any] = {"id": id, "type": "reasoning", "status": "in_progress", "summary": []}
        self._entries: list[dict[str, Any]] = []
        self._open: tuple[str, Any] | None = None  # as what the entry that goes on is told, and what it is
        self._said: list[str] = []

    def think(self, entry: dict[str, Any]) -> Events:
        """An entry of `reasoning_details`, or a fragment of one."""
        kind = entry.get("type")
        text = entry.get("summary") if kind == "reasoning.summary" else entry.get("text")
        if type(kind) is str and kind in _THOUGHTS and text and type(text) is str:
            one = (kind, entry.get("index"))
            kind = "reasoning.summary" if self._sums else kind
            name, list_name, part_type, place = _THOUGHTS[kind]
            if self._open != (kind, one):
                yield from self._close()
                self._open = (kind, one)
                self.item.setdefault(list_name, []).append(part := {"type": part_type, "text": ""})
                yield f"response.{_PARTS[kind]}.added", self._at(place, list_name) | {"part": {**part}}
            self._said.append(text)
            yield f"response.{name}.delta", self._at(place, list_name) | {"delta": text}
        self.over = self.over or bool(entry.get("data"))
        self._entries.append(entry)

    def end(self) -> Events:
        yield from self._close()
        entries = join(self._entries)
        sealed = [entry for entry in entries if entry.get("data")]
        # A block is bound to its item's id, which clients send back with it. A text that was told as a summary is not
        # where its provider would look for it.
        told = is_own(entries) and not (self._sums and any(entry.get("text") for entry in entries))
        if told and len(sealed) < 2 and all(entry.get("id") in (None, self.item["id"]) for entry in sealed):
            if sealed:
                self.item["encrypted_content"] = sealed[0]["data"]
        else:
            self.item["encrypted_content"] = pack(entries)

    def _close(self) -> Events:
        if self._open is None:
            return
        kind, said = self._open[0], "".join(self._said)
        name, list_name, _, place = _THOUGHTS[kind]
        part, at = self.item[list_name][-1], self._at(place, list_name)
        self._open, self._said = None, []
        part["text"] = said
        yield f"response.{name}.done", at | {"text": said}
        yield f"response.{_PARTS[kind]}.done", at | {"part": {**part}}

    def _at(self, place: str, list_name: str) -> dict[str, Any]:
        return {place: len(self.item[list_name]) - 1}


class Call:
    """A call of a function, a custom tool or the local shell."""

    def __init__(self, id: str, call: dict[str, Any], kind: str, name: str, namespace: str | None) -> None:
        """`call` is the first fragment of the chat form's; `kind` is a key of `_CALLS`."""
        self._kind = kind
        self._delta, self._field = _CALLS[kind]
        self._said: list[str] = []
        of_all = {"id": id, "type": kind, "status": "in_progress", "call_id": call.get("id") or ""}
        if kind == "local_shell_call":
            self.item = of_all | {"action": {"type": "exec", "command": [], "env": {}}}
        else:
            self.item = of_all | {"name": name, self._field: ""}
        if namespace is not None:
            self.item["namespace"] = namespace
        # A custom tool, for a provider that knows functions alone, is one with its input as only argument.
        self._wrapped = kind == "custom_tool_call" and "function" in call

    def give(self, call: dict[str, Any]) -> Events:
        """More of its arguments."""
        for inner in (call.get("function"), call.get("custom")):
            text = (inner.get("arguments") or inner.get("input")) if inner else None
            if text:
                self._said.append(text)
                if self._delta and not self._wrapped:
                    yield f"response.{self._delta}.delta", {"delta": text}

    def end(self) -> Events:
        said = "".join(self._said)
        if self._kind == "local_shell_call":
            self.item["action"] = shell_action(said)
            return
        if self._wrapped:
            said = _unwrapped(said)
            yield f"response.{self._delta}.delta", {"delta": said}
        self.item[self._field] = said
        done = {self._field: said} | ({"name": self.item["name"]} if self._field == "arguments" else {})
        yield f"response.{self._delta}.done", done


class Picture:
    """A picture, which comes whole."""

    def __init__(self, id: str, url: str) -> None:
        self.item: dict[str, Any] = {"id": id, "type": "image_generation_call", "status": "in_progress", "result": None}
        self._data = url.partition(",")[2] if url.startswith("data:") else url

    def end(self) -> Events:
        self.item["result"] = self._data
        yield "response.image_generation_call.completed", {}


# For the entries with readable text: the event, where the item has them, as what, and how a place among them is called.
_THOUGHTS = {
    "reasoning.summary": ("reasoning_summary_text", "summary", "summary_text", "summary_index"),
    "reasoning.text": ("reasoning_text", "content", "reasoning_text", "content_index"),
}
_PARTS = {"reasoning.summary": "reasoning_summary_part", "reasoning.text": "content_part"}
# For each type of call the event of its deltas, and the field that they fill.
_CALLS = {
    "function_call": ("function_call_arguments", "arguments"),
    "custom_tool_call": ("custom_tool_call_input", "input"),
    "local_shell_call": ("", ""),
}


def _no_text() -> dict[str, Any]:
    return {"type": "output_text", "text": "", "annotations": [], "logprobs": []}


def _unwrapped(arguments: str) -> str:
    try:
        given = strict_json.loads(arguments.encode())
    except ValueError:
        return arguments
    return given["input"] if type(given) is dict and type(given.get("input")) is str else arguments
