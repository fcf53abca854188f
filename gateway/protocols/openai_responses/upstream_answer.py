"""What a provider of the Responses protocol answers, event by event or whole, as chunks of the chat form.

A whole answer is read as the events that would have told it. Thoughts become entries of `reasoning_details`, each with
its item's id; an encrypted block comes when its item is done. A failure becomes the chat form's error.
"""

from collections.abc import Callable, Mapping
from typing import Any

from gateway.protocols.openai_chat import fault_from_response as fault
from gateway.protocols.openai_chat.answer.message import Draft
from gateway.protocols.openai_responses.thoughts import FORMAT

__all__ = ["AnswerReader", "fault", "whole"]

Chunk = dict[str, Any]

# Of the provider's codes those whose kind the words themselves do not tell: what was sent is at fault.
_REJECTIONS = ("invalid_", "image_", "unsupported_", "empty_", "failed_to_download_image", "bio_policy", "misalignment")
_ERROR = ("code", "message", "param", "type")
_BUSY = {"server_is_overloaded": "overloaded", "slow_down": "overloaded"}


class AnswerReader:
    """Takes the events of one answer in order.

    `completed` is the final object, once it has come, for whoever passes it on.
    """

    def __init__(self) -> None:
        self.completed: Mapping[str, Any] | None = None
        self._calls: dict[int, dict[str, Any]] = {}  # by the place in the output
        self._told: set[int] = set()  # places whose content has come in deltas
        self._entries: dict[tuple[int, str, int], int] = {}  # indices of `reasoning_details`
        self._texts = 0  # characters of the messages before, and of all of them
        self._written = 0
        self._searches = 0

    def event(self, name: str, data: Mapping[str, Any]) -> list[Chunk]:
        """The chunks that an event says. Those nobody knows say nothing."""
        kind = data.get("type") or name
        take = _EVENTS.get(kind) if type(kind) is str else None
        return take(self, data) if take else []

    def _begin(self, data: Mapping[str, Any]) -> list[Chunk]:
        response = _object(data.get("response"))
        named = {name: response[name] for name in ("id", "model", "service_tier") if type(response.get(name)) is str}
        return [named | _choice({"role": "assistant", "content": ""})]

    def _added(self, data: Mapping[str, Any]) -> list[Chunk]:
        item, place = _item(data), _number(data, "output_index")
        if item.get("type") == "message":
            self._texts = self._written
        if item.get("type") not in _CALLS:
            return []
        kind, field = _CALLS[item["type"]]
        call = {"index": len(self._calls), "id": item.get("call_id") or item.get("id"), "type": kind}
        self._calls[place] = call
        given = item.get(field)
        if given:
            self._told.add(place)
        return [_choice({"tool_calls": [call | {kind: {"name": item.get("name"), field: given or ""}}]})]

    def _given(self, data: Mapping[str, Any]) -> list[Chunk]:
        call = self._calls.get(_number(data, "output_index"))
        if call is None:
            return []
        self._told.add(_number(data, "output_index"))
        field = "input" if call["type"] == "custom" else "arguments"
        return [_choice({"tool_calls": [{"index": call["index"], call["type"]: {field: data.get("delta")}}]})]

    def _said(self, data: Mapping[str, Any]) -> list[Chunk]:
        self._told.add(_number(data, "output_index"))
        text, logprobs = data.get("delta"), data.get("logprobs")
        self._written += len(text) if type(text) is str else 0
        return [_choice({"content": text}, logprobs)]

    def _refused(self, data: Mapping[str, Any]) -> list[Chunk]:
        self._told.add(_number(data, "output_index"))
        return [_choice({"refusal": data.get("delta")})]

    def _cited(self, data: Mapping[str, Any]) -> list[Chunk]:
        annotation = data.get("annotation")
        return [_choice({"annotations": [_nested(annotation, self._texts)]})] if type(annotation) is dict else []

    def _summed(self, data: Mapping[str, Any]) -> list[Chunk]:
        return [self._thought(data, "summary", _number(data, "summary_index"), data.get("delta"))]

    def _thought_on(self, data: Mapping[str, Any]) -> list[Chunk]:
        return [self._thought(data, "text", _number(data, "content_index"), data.get("delta"))]

    def _thought(self, data: Mapping[str, Any], kind: str, at: int, text: Any) -> Chunk:
        """A fragment of a thought. Between parts of a summary what is read as one text has a blank line."""
        place = _number(data, "output_index")
        self._told.add(place)
        is_new = (place, kind, at) not in self._entries
        entry = {"type": f"reasoning.{kind}", kind: text, "format": FORMAT, "index": self._index(place, kind, at)}
        if data.get("item_id"):
            entry["id"] = data["item_id"]
        between = "\n\n" if is_new and entry["index"] else ""
        return _choice({"reasoning": between + text if type(text) is str else text, "reasoning_details": [entry]})

    def _done(self, data: Mapping[str, Any]) -> list[Chunk]:
        """What an item has that no event before has told."""
        item, place = _item(data), _number(data, "output_index")
        kind, chunks = item.get("type"), []
        if kind in _CALLS:
            if place not in self._calls:
                return self._added(data)
            if place not in self._told:
                field = _CALLS[kind][1]
                return self._given({"output_index": place, "delta": item.get(field)}) if item.get(field) else []
        elif kind == "message" and place not in self._told:
            self._texts = self._written
            for part in _list(item.get("content")):
                chunks += self._part(part, place)
        elif kind == "reasoning":
            if place not in self._told:
                for list_name, name in (("summary", "summary"), ("content", "text")):
                    for at, part in enumerate(_list(item.get(list_name))):
                        place_of = {"output_index": place, "item_id": item.get("id")}
                        chunks.append(self._thought(place_of, name, at, part.get("text")))
            if item.get("encrypted_content"):
                entry = {"type": "reasoning.encrypted", "data": item["encrypted_content"], "format": FORMAT}
                entry["index"] = self._index(place, "encrypted", 0)
                chunks.append(_choice({"reasoning_details": [entry | ({"id": item["id"]} if item.get("id") else {})]}))
        elif kind == "image_generation_call" and type(item.get("result")) is str:
            url = f"data:image/{item.get('output_format') or 'png'};base64,{item['result']}"
            chunks.append(_choice({"images": [{"type": "image_url", "image_url": {"url": url}}]}))
        elif kind == "web_search_call" and _object(item.get("action")).get("type", "search") == "search":
            self._searches += 1
        return chunks

    def _part(self, part: dict[str, Any], place: int) -> list[Chunk]:
        if part.get("type") == "refusal":
            return self._refused({"output_index": place, "delta": part.get("refusal")})
        before = self._written
        said = self._said({"output_index": place, "delta": part.get("text"), "logprobs": part.get("logprobs")})
        cited = [_nested(annotation, before) for annotation in _list(part.get("annotations"))]
        return [*said, _choice({"annotations": cited})] if cited else said

    def _end(self, data: Mapping[str, Any]) -> list[Chunk]:
        response = _object(data.get("response"))
        self.completed = response
        reason = _object(response.get("incomplete_details")).get("reason")
        finish = reason or ("length" if response.get("status") == "incomplete" else None)
        chunk = _choice({}) | {"usage": self._usage(response)}
        chunk["choices"][0]["finish_reason"] = finish or ("tool_calls" if self._calls else "stop")
        if type(response.get("service_tier")) is str:
            chunk["service_tier"] = response["service_tier"]
        return [chunk]

    def _fail(self, data: Mapping[str, Any]) -> list[Chunk]:
        response = _object(data.get("response"))
        failure = response.get("error") or data.get("error") or data
        sent = {"message": failure} if type(failure) is str else _object(failure)
        told = {name: sent[name] for name in _ERROR if type(sent.get(name)) is str}
        code = told.get("code", "")
        if code.startswith(_REJECTIONS):
            told["type"] = "invalid_request_error"
        elif code in _BUSY:
            told["type"] = _BUSY[code]
        elif told.get("type") in _EVENTS:  # that of the event
            del told["type"]
        told["message"] = told.get("message") or "The provider's answer failed."
        return [{"error": told}]

    def _usage(self, response: Mapping[str, Any]) -> dict[str, Any] | None:
        """The counts under the chat form's names, and not looked into here."""
        usage = response.get("usage")
        if type(usage) is not dict:
            return None
        made: dict[str, Any] = {_COUNTS.get(name, name): value for name, value in usage.items()}
        billed = _object(_object(response.get("tool_usage")).get("web_search")).get("num_requests")
        if searches := self._searches if billed is None else billed:
            made["prompt_tokens_details"] = {**_object(made.get("prompt_tokens_details")), "web_search": searches}
        return made

    def _index(self, place: int, kind: str, at: int) -> int:
        return self._entries.setdefault((place, kind, at), len(self._entries))


def whole(response: dict[str, Any]) -> dict[str, Any]:
    """A provider's whole answer as a chat completion, or as the chat form's error."""
    reader = AnswerReader()
    if response.get("status") not in (None, "completed", "incomplete") or response.get("error"):
        return reader.event("response.failed", {"response": response})[0]
    chunks = reader.event("response.created", {"response": response})
    for at, item in enumerate(_list(response.get("output"))):
        chunks += reader.event("response.output_item.done", {"output_index": at, "item": item})
    chunks += reader.event("response.completed", {"response": response})
    draft, top = Draft(), dict[str, Any]()
    for chunk in chunks:
        top |= {name: value for name, value in chunk.items() if name != "choices"}
        draft.add(chunk["choices"][0]["delta"], chunk["choices"][0].get("logprobs"))
    last = chunks[-1]["choices"][0]
    choice = {"index": 0, "message": draft.message(), "logprobs": draft.logprobs()}
    choice["finish_reason"] = last["finish_reason"]
    created = response.get("created_at")
    return {"object": "chat.completion", "created": created} | top | {"choices": [choice]}


def _choice(delta: dict[str, Any], logprobs: Any = None) -> Chunk:
    made: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": None}
    if logprobs:
        made["logprobs"] = {"content": logprobs, "refusal": None}
    return {"choices": [made]}


def _nested(annotation: dict[str, Any], before: int) -> dict[str, Any]:
    """A citation as chat has it, its places counted from the beginning of all text."""
    if annotation.get("type") != "url_citation":
        return annotation
    inner = {name: value for name, value in annotation.items() if name != "type"}
    for name in ("start_index", "end_index"):
        if type(inner.get(name)) is int:
            inner[name] += before
    return {"type": "url_citation", "url_citation": inner}


def _item(data: Mapping[str, Any]) -> dict[str, Any]:
    item = _object(data.get("item"))
    return item if type(item.get("type")) is str else {}


def _number(data: Mapping[str, Any], name: str) -> int:
    """A place; 0 where there is none."""
    value = data.get(name)
    return value if type(value) is int else 0


def _object(value: Any) -> dict[str, Any]:
    return value if type(value) is dict else {}


def _list(value: Any) -> list[dict[str, Any]]:
    return [inner for inner in value if type(inner) is dict] if type(value) is list else []


_CALLS = {"function_call": ("function", "arguments"), "custom_tool_call": ("custom", "input")}
_COUNTS: Mapping[Any, str] = {
    "input_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens",
    "input_tokens_details": "prompt_tokens_details",
    "output_tokens_details": "completion_tokens_details",
}
_EVENTS: Mapping[str, Callable[[AnswerReader, Mapping[str, Any]], list[Chunk]]] = {
    "response.created": AnswerReader._begin,
    "response.output_item.added": AnswerReader._added,
    "response.output_item.done": AnswerReader._done,
    "response.output_text.delta": AnswerReader._said,
    "response.output_text.annotation.added": AnswerReader._cited,
    "response.refusal.delta": AnswerReader._refused,
    "response.function_call_arguments.delta": AnswerReader._given,
    "response.custom_tool_call_input.delta": AnswerReader._given,
    "response.reasoning_summary_text.delta": AnswerReader._summed,
    "response.reasoning_text.delta": AnswerReader._thought_on,
    "response.completed": AnswerReader._end,
    "response.incomplete": AnswerReader._end,
    "response.failed": AnswerReader._fail,
    "error": AnswerReader._fail,
}
