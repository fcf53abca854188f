"""What a client asks for (`parse`), and the body an upstream of the same protocol gets (`upstream_body`)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import Struct

from gateway.protocols.openai_chat.request.checks import TYPE, UNSUPPORTED, checked_model, wrong
from gateway.protocols.openai_chat.request.fields import CHECKS, end_user, stops, web_search
from gateway.protocols.openai_chat.request.foreign_clients import understood
from gateway.protocols.openai_chat.request.foreign_forms import (
    JSON_WISH_BYTES,
    rewrite,
    tools_without_cache_control,
    with_json_wish,
    with_reasoning_content,
    without_cache_control,
    without_others_thoughts,
)
from gateway.protocols.openai_chat.request.messages import look, outline
from gateway.protocols.openai_chat.request.overrides import refuse_overrides
from gateway.protocols.openai_chat.request.parts import NO_MEDIA
from gateway.protocols.openai_chat.request.reasoning import ReasoningWish, read_wish
from gateway.protocols.openai_chat.request.routing_fields import (
    ModelRoutingWish,
    RoutingWish,
    not_understood,
    read_model_routing,
    read_routing,
)
from gateway.protocols.openai_chat.request.tools import (
    function_call,
    functions,
    tool_choice,
    tools,
)
from gateway.protocols.sides import CHATS, Spoken
from gateway.wire import strict_json
from gateway.wire.dialects import STANDARD, Dialect

# For the gateway: where to go, and what to show of what came back. No upstream sees them.
OWN_FIELDS = frozenset({"provider", "model_routing_config", "usage", "include_reasoning"})
PENALTIES = ("frequency_penalty", "presence_penalty")
KNOWN_FIELDS = CHECKS.keys() | {
    *("model", "messages", "stream", "n", "temperature", "stop"),
    *("tools", "tool_choice", "functions", "function_call"),
    *("provider", "model_routing_config"),
}
MAX_CHOICES = 8
MOST_SEARCHES = 10
MAX_FIELDS = 256  # known or not
NO_THOUGHTS: frozenset[str] = frozenset()

_CHECKS_BUT_PENALTIES = {name: check for name, check in CHECKS.items() if name not in PENALTIES}
_ROUTES = frozenset({"provider", "model_routing_config"})
_ORDINARY = KNOWN_FIELDS - _ROUTES
# Most bodies have no others, and then nothing else is looked for in them.
_USUAL = frozenset(
    {
        *("model", "messages", "stream", "stream_options", "temperature", "top_p", "user", "seed"),
        *("max_tokens", "max_completion_tokens"),
    }
)


# One is made for each request: a `Struct` costs a third of a frozen dataclass.
class ChatRequest(Struct, frozen=True, kw_only=True):
    """A chat request, checked.

    - `body`: the client's, without the known fields that are null: they count as absent throughout
    - `changes`: the fields of it that go to an upstream otherwise
    - `stream`: whether the client is answered with a stream, as it or its dialect wants
    - `include_usage`: whether that stream ends with a usage chunk because the client asked
    - `output_cap`: tokens the client allows for the answer; `max_completion_tokens` wins over `max_tokens`
    - `end_user`: who the client acts for, from `user`, `user_id` or `safety_identifier`
    - `text_bytes`: no less than the bytes of text in it: the raw body without base64 payloads of media, and what we add
    - `images`, `audios`, `files`: how many such parts, for bounds per item; video counts as a file
    - `file_bytes`: of those files that are text, which may be a token each
    - `modalities`: what it takes to read it besides text, each with the path of the first part that needs it
    - `file_ids`: files of the project that are named instead of sent
    - `tokens`: of its prompt, where that came as tokens and not as text; `text_bytes` has them, too
    - `echoed_bytes`: of the answer that only repeat the prompt
    - `stops`: the stop sequences
    - `reasoning`: how much the model is to think; None: nothing was said
    - `hides_reasoning`: thoughts are paid for and not shown
    - `wants_cost`: usage is to be shown with its cost
    - `cache_control`: some part or tool has a cache breakpoint
    - `thoughts`: formats of the signed or encrypted thoughts in it, "" for those that name none
    - `routing`, `model_routing`: wishes for the route
    - `unknown`: fields this gateway has no meaning for; they pass
    - `not_understood`: the same inside fields that no upstream sees, by path
    - `ignored`: fields the dialect takes and ignores
    - `spoken`: what the client said, if that was in another protocol
    """

    body: dict[str, Any]
    model: str
    stream: bool
    include_usage: bool
    output_cap: int | None
    n: int
    end_user: str | None
    metadata: dict[str, str]
    text_bytes: int
    images: int
    audios: int
    files: int
    file_bytes: int = 0
    modalities: Mapping[str, str]
    file_ids: tuple[str, ...]
    tokens: int = 0
    echoed_bytes: int = 0
    stops: tuple[str, ...]
    reasoning: ReasoningWish | None
    hides_reasoning: bool
    wants_cost: bool
    cache_control: bool
    thoughts: frozenset[str]
    routing: RoutingWish | None
    model_routing: ModelRoutingWish | None
    unknown: tuple[str, ...]
    not_understood: tuple[str, ...]
    ignored: tuple[str, ...]
    changes: Mapping[str, Any]
    spoken: Spoken | None = None

    @property
    def makes(self) -> frozenset[str]:
        """What a model must make to be asked this, one of them."""
        return CHATS if self.spoken is None else self.spoken.makes

    @property
    def is_long(self) -> bool:
        """Whether it takes long to encode."""
        return self.text_bytes > strict_json.LONG_STRING

    def encoded(self, body: Any) -> bytes:
        """The JSON of what an upstream is sent of this, in steps that are each short where it is long."""
        return strict_json.dumps_long(body) if self.is_long else strict_json.dumps(body)

    @property
    def logprobs(self) -> bool:
        """Whether log probabilities were asked for; else an answer shows none."""
        return self.body.get("logprobs") is True

    @property
    def searches(self) -> int:
        """Searches of the web that one answer may take at most: nobody says how many, so it is a bound of ours."""
        return MOST_SEARCHES if "web_search_options" in self.body else 0

    @property
    def legacy_functions(self) -> bool:
        """Whether the client speaks of functions in the older form, and expects `function_call` in the answer."""
        return "functions" in self.body


@dataclass(frozen=True, slots=True)
class Fit:
    """How a request meets an offer, see `gateway.request.parameters`.

    - `named`: parameters that have no effect, to be told to the client
    - `withheld`: fields that the upstream does not get; `cache_control` stands for every breakpoint
    - `changes`: fields that it gets instead
    - `tells_thoughts`: the upstream demands `reasoning_content` on an assistant's turn that had thoughts
    - `enforced_stops`: sequences that the gateway looks for, see `gateway.protocols.stops`
    - `thoughts`: the format of the signed thoughts that the upstream gets; None: all of them
    """

    named: tuple[str, ...] = ()
    withheld: frozenset[str] = frozenset()
    changes: Mapping[str, Any] = field(default_factory=dict)
    enforced_stops: tuple[str, ...] = ()
    tells_thoughts: bool = False
    thoughts: str | None = None

    def without(self, names: Collection[str]) -> "Fit":
        """The same with these fields withheld, too."""
        return replace(self, withheld=self.withheld.union(names)) if names else self


WHOLE = Fit()


def parse(body: Any, raw_length: int, dialect: Dialect = STANDARD) -> ChatRequest:
    """Check a parsed body; `raw_length` is its length in bytes as it came. Fields nobody knows pass unseen.

    Raises `InvalidRequest` for the first fault in the documented order, with the offending `param`: model, messages,
    `stream_options` without a stream, `n`, `temperature`, the two conflicts, `provider.routing`, then the rest.
    Overrides of the dial are refused by name, see `overrides`.
    """
    if type(body) is not dict:
        raise wrong("The body must be a JSON object.", None, TYPE)
    if len(body) > MAX_FIELDS:
        raise wrong(f"The body has more than {MAX_FIELDS} fields. Send fewer.", None)
    if None in body.values():
        body = {name: value for name, value in body.items() if value is not None or name not in KNOWN_FIELDS}
    usual = _USUAL.issuperset(body)
    model = checked_model(body.get("model"), dialect)
    messages: Any = body.get("messages")
    deep = outline(messages, dialect)
    stream = _stream(body, dialect)
    n = _choices(body["n"], dialect) if not usual and "n" in body else 1
    if "temperature" in body:
        _check_temperature(body["temperature"], dialect)
    include_usage, wants_cost = _usage(body, dialect)
    hides_reasoning = not usual and _hides_reasoning(body, dialect)
    routing = read_routing(body["provider"], dialect) if not usual and "provider" in body else None
    # What follows has no documented order.
    unknown: tuple[str, ...] = ()
    strange: tuple[str, ...] = ()
    model_routing = None
    if not usual and not _ORDINARY.issuperset(body):
        refuse_overrides(body, body.keys() - _ORDINARY)
        unknown = tuple(name for name in body if name not in KNOWN_FIELDS)
        if "model_routing_config" in body:
            model_routing = read_model_routing(body["model_routing_config"])
        strange = tuple(not_understood(body))
    media = look(deep, messages) if deep else NO_MEDIA
    checks = _CHECKS_BUT_PENALTIES if dialect.ignores_penalties else CHECKS
    for name, value in body.items():
        if check := checks.get(name):
            check(value)
    cached, wants_json = False, False
    changes: dict[str, Any] = {}
    sequences: tuple[str, ...] = ()
    reasoning = None
    if not usual:
        if body.get("top_logprobs") and body.get("logprobs") is not True:
            raise wrong("Parameter top_logprobs needs logprobs to be true. Send both.", "top_logprobs")
        cached, changes = _check_tools(body)
        sequences = stops(body["stop"], dialect.max_stops) if "stop" in body else ()
        reasoning, efforts = read_wish(body, dialect.efforts)
        changes |= efforts
        if "web_search_options" in body and (rewritten := web_search(body["web_search_options"])):
            changes["web_search_options"] = rewritten
        wants_json = _wants_json(body)
    if media.to_rewrite:
        changes["messages"] = rewrite(messages)
    if stream and not body.get("stream"):
        changes["stream"] = True
    return ChatRequest(
        body=body,
        model=model,
        stream=stream,
        include_usage=include_usage and stream,
        output_cap=body.get("max_completion_tokens", body.get("max_tokens")),
        n=n,
        end_user=end_user(body),
        metadata=body.get("metadata", {}),
        text_bytes=max(0, raw_length - media.base64) + (JSON_WISH_BYTES if wants_json else 0),
        images=media.images,
        audios=media.audios,
        files=media.files,
        file_bytes=media.file_bytes,
        modalities=media.modalities,
        file_ids=tuple(media.file_ids),
        stops=sequences,
        reasoning=reasoning,
        hides_reasoning=hides_reasoning,
        wants_cost=wants_cost,
        cache_control=cached or media.cache_control,
        thoughts=frozenset(media.thoughts) if media.thoughts else NO_THOUGHTS,
        routing=routing,
        model_routing=model_routing,
        unknown=unknown,
        not_understood=strange,
        ignored=_penalties(body) if dialect.ignores_penalties else (),
        changes=changes,
    )


def upstream_body(
    request: ChatRequest,
    *,
    model: str,
    output_cap: int | None,
    cap_field: str,
    ask_usage: bool,
    fit: Fit = WHOLE,
    prefill: str = "",
) -> bytes:
    """The body for an upstream of this protocol, see `offered`; of a client of another one see `foreign_clients`."""
    body = offered(
        request,
        model=model,
        output_cap=output_cap,
        cap_field=cap_field,
        ask_usage=ask_usage,
        fit=fit,
        prefill=prefill,
    )
    if request.spoken is not None:
        body = understood(body)
    return request.encoded(body)


def offered(
    request: ChatRequest,
    *,
    model: str,
    output_cap: int | None,
    cap_field: str,
    ask_usage: bool,
    fit: Fit = WHOLE,
    prefill: str = "",
) -> dict[str, Any]:
    """The body for an offer: the client's with every field it had, and these changes.

    `model` is the upstream's name for it. `output_cap`, if given, replaces the client's cap. It goes under the name
    the client used, or as `cap_field` if that was `max_tokens` or none; of two caps `max_completion_tokens` wins. A
    stream is asked for usage, whatever the client said, unless `ask_usage` is false: then the upstream does not take
    `stream_options` at all. `fit` says what the offer does not take. A wish for a JSON object is put into words where
    the messages lack them. An empty list of tools does not go. `prefill` is the beginning of an answer that is to be
    gone on with.
    """
    gone = fit.withheld
    body = {**request.body, **request.changes, **fit.changes, "model": model}
    for name in body.keys() & (OWN_FIELDS | gone if gone else OWN_FIELDS):
        del body[name]
    if "tools" in body and not body["tools"]:
        for name in ("tools", "tool_choice", "parallel_tool_calls"):
            body.pop(name, None)
    _put_cap(body, output_cap, cap_field)
    if "thinking" in body or "reasoning" in body:
        _think_within(body, body.get("max_completion_tokens") or body.get(cap_field))
    if fit.enforced_stops:
        left = [sequence for sequence in request.stops if sequence not in fit.enforced_stops]
        body["stop"] = left
        if not left:
            del body["stop"]
    if _wants_json(body):
        body["messages"] = with_json_wish(body["messages"])
    if fit.tells_thoughts:
        body["messages"] = with_reasoning_content(body["messages"])
    if fit.thoughts is not None:
        body["messages"] = without_others_thoughts(body["messages"], fit.thoughts)
    if "cache_control" in gone:
        body["messages"] = without_cache_control(body["messages"])
        if "tools" in body:
            body["tools"] = tools_without_cache_control(body["tools"])
    if prefill:
        body["messages"] = [*body["messages"], {"role": "assistant", "content": prefill}]
    if request.stream and ask_usage:
        body["stream_options"] = body.get("stream_options", {}) | {"include_usage": True}
    elif "stream_options" in body:
        del body["stream_options"]
    return body


def _wants_json(body: Mapping[str, Any]) -> bool:
    return "response_format" in body and body["response_format"]["type"] == "json_object"


def _put_cap(body: dict[str, Any], output_cap: int | None, cap_field: str) -> None:
    """Write the cap under one name: the client's, but the older one gives way where a provider's is the newer."""
    older = body.pop("max_tokens", None)
    newer = body.get("max_completion_tokens")
    cap = (newer or older) if output_cap is None else output_cap
    if cap is not None:
        body["max_completion_tokens" if newer else cap_field] = cap


def _think_within(body: dict[str, Any], cap: int | None) -> None:
    """A budget to think in is a part of the cap: providers refuse one that is not below it, whoever lowered the cap."""
    for name, amount in (("thinking", "budget_tokens"), ("reasoning", "max_tokens")):
        budget = (body.get(name) or {}).get(amount)
        if cap is not None and budget is not None and budget >= cap:
            body[name] = {**body[name], amount: max(1, cap - 1)}


def _stream(body: Mapping[str, Any], dialect: Dialect) -> bool:
    """Whether the answer is a stream. Options of a stream that is not one are refused, or ignored."""
    stream = body.get("stream", False)
    if type(stream) is not bool:
        raise wrong("Parameter stream must be true or false.", "stream", TYPE)
    streams = stream or dialect.always_streams
    if not streams and "stream_options" in body and dialect.refuses_stray_stream_options:
        raise wrong(dialect.messages["stray_stream_options"], "stream_options", UNSUPPORTED)
    return streams


def _choices(n: Any, dialect: Dialect) -> int:
    if type(n) is not int:
        raise wrong("Parameter n must be an integer.", "n", TYPE)
    if n > 1 and dialect.only_one_choice:
        raise wrong(dialect.messages["n"], "n", UNSUPPORTED)
    if not 1 <= n <= MAX_CHOICES:
        raise wrong(f"Parameter n must be from 1 to {1 if dialect.only_one_choice else MAX_CHOICES}.", "n")
    return n


def _check_temperature(temperature: Any, dialect: Dialect) -> None:
    if type(temperature) is not float and type(temperature) is not int:
        raise wrong(dialect.messages["temperature"], "temperature", TYPE)
    if temperature < 0 or (dialect.max_temperature is not None and temperature > dialect.max_temperature):
        raise wrong(dialect.messages["temperature"], "temperature")


def _inside(value: Any, *names: str) -> Any:
    """What lies at a path of names in a value that has not been checked yet; None where it breaks off."""
    for name in names:
        value = value.get(name) if type(value) is dict else None
    return value


def _usage(body: Mapping[str, Any], dialect: Dialect) -> tuple[bool, bool]:
    """Whether usage was asked for, and whether in a place that asks for its cost too. The places may not disagree."""
    asked = _inside(body["stream_options"], "include_usage") if "stream_options" in body else None
    if "usage" not in body and "reasoning" not in body:
        return asked is True, False
    own, inner = _inside(body.get("usage"), "include"), _inside(body.get("reasoning"), "usage", "include")
    said = {flag for flag in (asked, own, inner) if type(flag) is bool}
    if len(said) > 1:
        raise wrong(dialect.messages["usage_conflict"], "stream_options.include_usage")
    return True in said, own is True or inner is True


def _hides_reasoning(body: Mapping[str, Any], dialect: Dialect) -> bool:
    if "reasoning" not in body and "include_reasoning" not in body:
        return False
    exclude, include = _inside(body.get("reasoning"), "exclude"), body.get("include_reasoning")
    if type(include) is bool and include is exclude:
        raise wrong(dialect.messages["reasoning_conflict"], "include_reasoning")
    return exclude is True or include is False


def _check_tools(body: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
    """Check tools, functions and the choice among them.

    Gives whether a tool has a cache breakpoint, and the choice if it goes on in another form.
    """
    names: set[str] = set()
    cached = False
    changes: dict[str, Any] = {}
    if "tools" in body:
        names, cached = tools(body["tools"])
    if "tool_choice" in body and (meant := tool_choice(body["tool_choice"], names)) is not body["tool_choice"]:
        changes["tool_choice"] = meant
    older = functions(body["functions"]) if "functions" in body else set()
    if "function_call" in body:
        function_call(body["function_call"], older)
    return cached, changes


def _penalties(body: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(name for name in PENALTIES if name in body)
