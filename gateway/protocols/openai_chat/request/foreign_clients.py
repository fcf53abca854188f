"""What clients of other protocols say, as servers of this one take it. OpenAI's own is the strictest of them, and
refuses the whole request for a call without a result, a long id, or a schema that others' tools may have.

What a client of this protocol says itself goes as it is.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gateway.protocols.call_ids import within
from gateway.protocols.json_schema import object_schema, with_items
from gateway.protocols.openai_chat.request.checks import shown

LONGEST_ID = 40
# No protocol has a word for it, and the model must not wait for a result that never comes.
NO_RESULT = "The tool gave no result."
_TEXT_PART = {"type", "text"}

Messages = list[dict[str, Any]]


def understood(body: Mapping[str, Any]) -> dict[str, Any]:
    """A checked body in these forms; what is in them already is the same object."""
    messages = [_with_short_ids(message) for message in with_plain_texts(answered(body["messages"]))]
    made = {**body, "messages": messages}
    if body.get("tools"):
        made["tools"] = [_tool(tool) for tool in body["tools"]]
    return made


def answered(messages: Sequence[dict[str, Any]]) -> Messages:
    """The messages with each call's result behind its turn: one that nobody gave says so. The result of no call, or a
    second one, is told by the user.
    """
    made: Messages = []
    waiting = Counter[str]()  # calls of the turn before that have no result yet
    told: Messages = []  # by the user, once all results are there
    for message in messages:
        if message["role"] == "tool" and waiting[message["tool_call_id"]] > 0:
            waiting[message["tool_call_id"]] -= 1
            made.append(message)
        elif message["role"] == "tool":
            told.append({"role": "user", "content": [*result_of_no_call(message)]})
        else:
            made += [*_missing(waiting), *told, message]
            waiting, told = Counter(call["id"] for call in message.get("tool_calls") or ()), []
    return [*made, *_missing(waiting), *told]


def result_of_no_call(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A tool's message that answers nothing, as parts of one of the user's."""
    yield {"type": "text", "text": f"Result of the tool call {shown(message['tool_call_id'])}:"}
    content = message.get("content") or ()
    yield from [{"type": "text", "text": content}] if type(content) is str else content


def with_plain_texts(messages: Sequence[dict[str, Any]]) -> Messages:
    """The messages, a content that is plain texts alone as one string: clients of other protocols write parts always,
    and some servers of this one take them from users alone, or from nobody. Those that take them put a line's end
    between; an assistant's go on.
    """
    return [
        {**message, "content": ("" if message["role"] == "assistant" else "\n").join(part["text"] for part in content)}
        if type(content := message.get("content")) is list
        and content
        and all(part.keys() == _TEXT_PART for part in content)
        else message
        for message in messages
    ]


def parameters(schema: Any) -> dict[str, Any]:
    """The schema of a function that is not strict, as OpenAI takes it: of an object, without a union at its top, each
    list with its items.
    """
    made: dict[str, Any] = with_items(object_schema(schema))
    return made


def _missing(waiting: Counter[str]) -> Messages:
    return [{"role": "tool", "tool_call_id": id, "content": NO_RESULT} for id in waiting.elements()]


def _with_short_ids(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        return {**message, "tool_call_id": within(message["tool_call_id"], LONGEST_ID)}
    calls = message.get("tool_calls")
    return (
        {**message, "tool_calls": [{**call, "id": within(call["id"], LONGEST_ID)} for call in calls]}
        if calls
        else message
    )


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool.get("function") or {}
    if function.get("strict") or not function.get("parameters"):
        return tool
    return {**tool, "function": {**function, "parameters": parameters(function["parameters"])}}
