"""A client and a provider that both speak the Responses protocol: what passes, and what is put right on the way.

The body goes with every field it had, but for what the gateway decides: the model, the cap, whether anything is kept,
and ids, which in a shared account must not name what another tenant left there. An event passes as it came, unless it
holds the response, whose identity is the gateway's; the last one waits for the settlement.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from gateway.protocols.call_ids import within
from gateway.protocols.openai_chat.request.request import OWN_FIELDS
from gateway.protocols.openai_responses import carried
from gateway.protocols.openai_responses.client_answer import failed
from gateway.protocols.openai_responses.client_request import CALLED, ENCRYPTED, LOGPROBS
from gateway.protocols.openai_responses.response import usage_of
from gateway.protocols.openai_responses.thoughts import PACKED
from gateway.protocols.openai_responses.tools import SEARCHES
from gateway.protocols.openai_responses.upstream_request import LEAST_CAP, LONGEST_CALL_ID
from gateway.wire import strict_json
from gateway.wire.dialects import STANDARD, Dialect
from gateway.wire.errors import GatewayError

Item = dict[str, Any]
LONGEST_ID = 256  # that a provider's may be to be sealed
NO_FILES: Mapping[str, Mapping[str, str]] = {}
# Of these the content is all there is; their ids would only be looked up.
_WITHOUT_ID = frozenset(
    {
        *("message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"),
        *("shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output"),
    }
)
_FIRST = "response.created"
_LAST = frozenset({"response.completed", "response.incomplete"})
_FAILURES = frozenset({"response.failed", "error"})


def body(
    asked: Mapping[str, Any],
    *,
    model: str,
    output_cap: int | None,
    stream: bool,
    store: bool,
    reasons: bool,
    previous: str | None = None,
    withheld: Collection[str] = (),
    referred: Sequence[Item] = (),
    files: Mapping[str, Mapping[str, str]] = NO_FILES,
) -> dict[str, Any]:
    """The body for a provider, from a client's that `client_request.chat_form` has taken.

    - `store`: the provider may keep the answer, and the client wants it kept
    - `reasons`: the model thinks; its thoughts come encrypted, as nothing else brings them back where nothing is kept
    - `previous`: the provider's id of the response to go on from
    - `withheld`: fields, by the chat form's names, that the provider does not get
    - `referred`: the items that `input` names by their ids, in the order in which it does
    - `files`: `file_data` and `filename` of the files that are named, by id
    """
    made = {name: value for name, value in asked.items() if name not in OWN_FIELDS}
    if type(made.get("input")) is list:
        made["input"] = _input(made["input"], referred, files)
    for name in withheld:
        _withhold(made, name)
    made |= {"model": model, "stream": stream, "store": store}
    if output_cap is not None:
        made["max_output_tokens"] = max(output_cap, LEAST_CAP)
    made.pop("previous_response_id", None)
    if previous is not None:
        made["previous_response_id"] = previous
    if reasons and ENCRYPTED not in (made.get("include") or ()):
        made["include"] = [*(made.get("include") or ()), ENCRYPTED]
    return made


class AnswerWriter:
    """Passes one answer on. Give it every `event`, settle, then send `final`.

    - `id`, `created` (Unix seconds), `model`: the gateway's own
    - `previous`: the id that the client went on from
    - `sealed`: gives what stands for the provider's id, which is told in place of `id`; None: nothing is kept there
    - `carries`: an item that carries the others ends the answer, see `carried`
    """

    def __init__(
        self,
        *,
        id: str,
        created: int,
        model: str,
        previous: str | None = None,
        sealed: Callable[[str], str] | None = None,
        carries: bool = False,
    ) -> None:
        self._own = {"id": id, "created_at": created, "model": model, "previous_response_id": previous}
        self._sealed = sealed
        self._carries = carries
        self._response: dict[str, Any] = {"object": "response", "output": []} | self._own
        self._last: tuple[str, dict[str, Any]] | None = None
        self._number = 0
        self._begun = False

    def event(self, name: str, data: Mapping[str, Any], raw: bytes) -> bytes:
        """The frame of one event, `raw` its data as it came. Nothing for what ends the stream, or failed."""
        name = str(data.get("type") or name)
        number = data.get("sequence_number")
        if name in _FAILURES:
            return b""
        if type(number) is int:
            self._number = number + 1
        if name == _FIRST:
            if self._begun:  # some servers begin twice
                return b""
            self._begun = True
        if type(response := data.get("response")) is dict:
            self._keep(response)
            told = {**data, "response": self._response}
            if name in _LAST:
                self._last = (name, told)
                return b""
            raw = strict_json.dumps(told)
        return b"event: %b\ndata: %b\n\n" % (name.encode(), raw)

    def whole(self, response: Mapping[str, Any]) -> None:
        """The answer of a provider that does not stream."""
        self._keep(response)

    def _keep(self, response: Mapping[str, Any]) -> None:
        """Notes the response as the client is shown it, with one id from beginning to end."""
        theirs = response.get("id")
        if self._sealed is not None and type(theirs) is str and 0 < len(theirs) <= LONGEST_ID:
            self._own["id"] = self._sealed(theirs)
            self._sealed = None
        self._response = {**response} | self._own

    def final(self, usage: Mapping[str, Any] | None = None) -> bytes:
        """What ends the stream, or the whole body. `usage`, of the chat form, is shown instead of the provider's."""
        if usage is not None:
            self._response["usage"] = usage_of(usage)
        carrier = carried.carrier(self.output) if self._carries else None
        at = len(self.output)
        if carrier is not None:
            self._response["output"] = [*self.output, carrier]
        if self._last is None:
            return strict_json.dumps(self._response)
        name, told = self._last
        out = b""
        if carrier is not None:  # before the last event, whose number it takes
            out = carried.frames(carrier, at, self._number - 1)
            told = told | {"sequence_number": self._number + 1}
        last = strict_json.dumps(told | {"response": self._response})
        return out + b"event: %b\ndata: %b\n\n" % (name.encode(), last)

    @property
    def output(self) -> list[Item]:
        """The items of the answer, once it is whole."""
        output = self._response.get("output")
        return output if type(output) is list else []

    def error_event(self, error: GatewayError, dialect: Dialect = STANDARD, request_id: str = "") -> bytes:
        """What ends a stream that failed after it began."""
        return failed(self._response, error, self._number, dialect, request_id)


def _input(items: list[Item], referred: Sequence[Item], files: Mapping[str, Mapping[str, str]]) -> list[Item]:
    made = []
    named = iter(referred)
    for item in items:
        if carried.carries(item):
            continue
        if item.get("type") == "item_reference":
            item = next(named)
        kind = item.get("type", "message")
        if kind == "reasoning" and not _is_theirs(item):
            continue
        if kind in _WITHOUT_ID and "id" in item:
            item = _without(item, "id")
        if type(item.get("call_id")) is str:
            item = item | {"call_id": within(item["call_id"], LONGEST_CALL_ID)}
        for name in ("content", "output"):
            if files and type(item.get(name)) is list:
                item = item | {name: [_with_data(part, files) for part in item[name]]}
        made.append(item)
    return made


def _is_theirs(thought: Item) -> bool:
    """Whether a provider of this protocol can read it: it made it, or it is plain text."""
    sealed = thought.get("encrypted_content")
    return not sealed.startswith(PACKED) if sealed else bool(thought.get("content"))


def _uncached(item: Item) -> Item:
    for name in ("content", "output"):
        if type(parts := item.get(name)) is list:
            item = item | {name: [_without(part, "prompt_cache_breakpoint") for part in parts]}
    return item


def _with_data(part: Any, files: Mapping[str, Mapping[str, str]]) -> Any:
    file = files.get(part.get("file_id", "")) if type(part) is dict else None
    if file is None:
        return part
    return {**_without(part, "file_id"), **file}


def _withhold(made: dict[str, Any], name: str) -> None:
    """Take out what the chat form calls `name`: a field, one inside of an object, or members of a list."""
    name, _, inner = CALLED.get(name, name).partition(".")
    if name == "include":
        made[name] = [word for word in made.get(name) or () if word != LOGPROBS]
    elif name == "web_search_options":
        made["tools"] = [tool for tool in made.get("tools") or () if tool["type"] not in SEARCHES]
    elif name == "cache_control" and type(made["input"]) is list:
        made["input"] = [*map(_uncached, made["input"])]
    elif not inner:
        made.pop(name, None)
    elif type(made.get(name)) is dict:
        made[name] = _without(made[name], inner)


def _without(value: Any, name: str) -> Any:
    return {key: inner for key, inner in value.items() if key != name} if type(value) is dict else value
