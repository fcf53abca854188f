"""Messages in forms that clients use and upstreams of this protocol do not take, put into the protocol's own.

- `image_url`, `video_url` as the string itself become an object with a `url`
- a file as bare base64 becomes a data URL, its type from the file's name
- Anthropic's blocks become what they are here: `tool_use` a tool call, `tool_result` a tool's message, `thinking` an
  entry of `reasoning_details`
- cache breakpoints go, where the upstream does not know them
- thoughts that another kind of provider signed or encrypted go
- what an assistant thought is put into `reasoning_content` too, where the upstream demands it
- a conversation that is to end in a JSON object says so: OpenAI and others refuse `json_object` where no message has
  the word, and a model that is not told may write white space without end

Everything here takes checked messages and gives new ones; the client's own are never changed, and those without such
forms are the same objects.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gateway.protocols.openai_chat.request.messages import is_bound, is_signed
from gateway.protocols.openai_chat.request.parts import CLAUDE, GEMINI, media_type_of
from gateway.wire import strict_json

_BLOCKS = frozenset({"tool_use", "thinking", "redacted_thinking"})
JSON_WISH = "Answer with a JSON object."
# This protocol has no field for a tool that failed, and the model must not take a failure for a result.
FAILED = "The tool failed."
JSON_WISH_BYTES = 64  # that it adds to a body, at most: alone it is a message
_JSON = re.compile("json", re.IGNORECASE)


def rewrite(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages without other protocols' blocks, bare media URLs and bare base64 of files."""
    rewritten = []
    for message in messages:
        content = message.get("content")
        if type(content) is not list:
            rewritten.append(message)
        elif message["role"] == "assistant":
            rewritten.append(_assistant(message, content))
        else:
            rewritten += _user(message, content)
    return rewritten


def without_cache_control(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages without cache breakpoints."""
    made = [_with_parts(message, _uncached) for message in messages]
    return [
        {**message, "tool_calls": [_uncached(call) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else message
        for message in made
    ]


def with_reasoning_content(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages, each assistant's turn that tells its thoughts elsewhere having them in `reasoning_content` too."""
    return [
        {**message, "reasoning_content": thought}
        if message["role"] == "assistant" and message.get("reasoning_content") is None and (thought := _told(message))
        else message
        for message in messages
    ]


def with_json_wish(messages: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """The messages with `JSON_WISH` at the end of the first one, if that instructs the model, else before it; the very
    same messages when some text of theirs says JSON already.
    """
    if any(_JSON.search(text) for message in messages for text in _texts(message)):
        return messages
    first = messages[0]
    if first["role"] not in ("system", "developer"):
        return [{"role": "system", "content": JSON_WISH}, *messages]
    said = first["content"]
    wished = f"{said}\n\n{JSON_WISH}" if type(said) is str else [*said, {"type": "text", "text": JSON_WISH}]
    return [{**first, "content": wished}, *messages[1:]]


def without_others_thoughts(messages: Sequence[dict[str, Any]], format: str) -> list[dict[str, Any]]:
    """The messages without the entries, and signatures on calls, that are bound to another format than `format`.

    A provider refuses a signature that is not its own. What names no format, or is bound to none, stays.
    """
    made = []
    for message in messages:
        details = message.get("reasoning_details")
        if details:
            kept = [entry for entry in details if not is_bound(entry) or entry.get("format") in (None, "", format)]
            if len(kept) < len(details):
                message = {name: value for name, value in message.items() if name != "reasoning_details"}
                if kept:
                    message["reasoning_details"] = kept
        calls = message.get("tool_calls")
        if calls and format != GEMINI and any(map(is_signed, calls)):
            unsigned = [{name: value for name, value in call.items() if name != "extra_content"} for call in calls]
            message = {**message, "tool_calls": unsigned}
        made.append(message)
    return made


def names_of_speakers(messages: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """The paths of who speaks, by name; other protocols have no place for it."""
    return tuple(
        f"messages[{at}].name"
        for at, message in enumerate(messages)
        if message.get("name") and message["role"] not in ("tool", "function")
    )


def tools_without_cache_control(tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tools without cache breakpoints."""
    return [_uncached(tool) for tool in tools]


def _texts(message: dict[str, Any]) -> Iterator[str]:
    content = message.get("content")
    if type(content) is str:
        yield content
    elif content:
        yield from (part["text"] for part in content if part["type"] == "text")


def _told(message: dict[str, Any]) -> str:
    """An assistant's thoughts in words: its `reasoning`, else the texts and summaries of `reasoning_details`."""
    details = message.get("reasoning_details") or ()
    told: str | None = message.get("reasoning")
    return told or "".join(entry.get("text") or entry.get("summary") or "" for entry in details)


def _uncached(value: dict[str, Any]) -> dict[str, Any]:
    if "cache_control" not in value:
        return value
    return {name: inner for name, inner in value.items() if name != "cache_control"}


def _with_parts(message: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    content = message.get("content")
    if type(content) is not list:
        return message
    return {**message, "content": [change(part) for part in content]}


def _user(message: dict[str, Any], content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tools' results come first, each as its own message: they answer the turn before."""
    results = [_tool_message(part) for part in content if part["type"] == "tool_result"]
    rest = [_part(part) for part in content if part["type"] != "tool_result"]
    return [*results, {**message, "content": rest}] if rest else results


def _tool_message(block: dict[str, Any]) -> dict[str, Any]:
    content = block.get("content")
    if block.get("is_error") is True:
        failure = {"type": "text", "text": FAILED}
        content = [failure, *([{"type": "text", "text": content}] if type(content) is str else content or [])]
    made = {"role": "tool", "tool_call_id": block["tool_use_id"], "content": content or ""}
    cache = block.get("cache_control")
    if cache is not None:  # It has a place on a part only.
        parts = content if type(content) is list and content else [{"type": "text", "text": content or ""}]
        made["content"] = [*parts[:-1], {**parts[-1], "cache_control": cache}]
    return made


def _assistant(message: dict[str, Any], content: list[dict[str, Any]]) -> dict[str, Any]:
    if not any(part["type"] in _BLOCKS for part in content):
        return message
    calls = [_call(part) for part in content if part["type"] == "tool_use"]
    thoughts = [part for part in content if part["type"] in ("thinking", "redacted_thinking")]
    said = [part for part in content if part["type"] not in _BLOCKS]
    made = {**message, "content": said or (None if calls else "")}
    if calls:
        made["tool_calls"] = [*(message.get("tool_calls") or []), *calls]
    if thoughts and not message.get("reasoning_details"):
        made["reasoning_details"] = [_thought(part, at) for at, part in enumerate(thoughts)]
    return made


def _call(block: dict[str, Any]) -> dict[str, Any]:
    arguments = strict_json.dumps(block["input"]).decode()
    call = {"id": block["id"], "type": "function", "function": {"name": block["name"], "arguments": arguments}}
    cache = block.get("cache_control")
    return call if cache is None else {**call, "cache_control": cache}


def _thought(block: dict[str, Any], index: int) -> dict[str, Any]:
    if block["type"] == "thinking":
        matter = {"type": "reasoning.text", "text": block["thinking"], "signature": block["signature"]}
    else:
        matter = {"type": "reasoning.encrypted", "data": block["data"]}
    return {**matter, "format": CLAUDE, "index": index}


def _part(part: dict[str, Any]) -> dict[str, Any]:
    kind = part["type"]
    if kind in ("image_url", "video_url"):
        return {**part, kind: {"url": part[kind]}} if type(part[kind]) is str else part
    if kind == "file":
        data = part["file"].get("file_data")
        if data and ":" not in data[:16]:
            media_type = media_type_of(data, part["file"]["filename"])
            return {**part, "file": {**part["file"], "file_data": f"data:{media_type};base64,{data}"}}
    return part
