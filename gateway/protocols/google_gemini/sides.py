"""generateContent as clients speak it, and as upstreams do."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from gateway.protocols.google_gemini import errors, signatures
from gateway.protocols.google_gemini.client.fields import camel
from gateway.protocols.google_gemini.client_answer import ClientAnswer
from gateway.protocols.google_gemini.client_request import ChatForm, chat_form
from gateway.protocols.google_gemini.upstream_answer import UpstreamAnswer
from gateway.protocols.google_gemini.upstream_request import CARRIED, NOTHING, Ability, native_body, path
from gateway.protocols.google_gemini.upstream_request import body as upstream_body
from gateway.protocols.google_gemini.usage import gemini_usage
from gateway.protocols.openai_chat.request.foreign_forms import names_of_speakers
from gateway.protocols.openai_chat.request.passing import passes, withheld, without
from gateway.protocols.openai_chat.request.request import ChatRequest, offered, parse
from gateway.protocols.sides import EVENTS, Asking, Counting, Ours, Sent, Spoken
from gateway.wire.dialects import STANDARD, Dialect
from gateway.wire.errors import GatewayError, InvalidRequest, UpstreamFault

NAME = "google_gemini"
LEVELS = ("minimal", "low", "medium", "high")
LABELS = frozenset({"labels"})  # of the account that all tenants share
# Where an offer does not take these, the chat form is what they are easily left out of.
CHAT_FIRST = frozenset({"web_search_options", "response_format", "logprobs"})
# What only this protocol has, and is neither billed beside tokens nor kept nor called out for.
FREE = frozenset(
    {
        *("videoMetadata", "mediaResolution", "safetySettings", "speechConfig", "responseModalities", "response"),
        *("responseMimeType", "scheduling", "willContinue", "partialArgs", "streamFunctionCallArguments", "behavior"),
    }
)


def read(body: Any, raw_length: int, *, model: str, stream: bool, events: bool) -> ChatRequest:
    """A client's body, checked, `raw_length` bytes as it came; the rest its path says: `events`, that a stream is one
    of events and no array. Raises `InvalidRequest`, with the path as the client knows it.
    """
    form = chat_form(body, model=model, stream=stream)
    try:
        asked = parse(form.body, raw_length, STANDARD)
    except InvalidRequest as error:
        error.param = form.told(error.param)
        raise
    words = (path.rpartition(".")[2] for path in form.only_native)
    spoken = Spoken(
        protocol=NAME,
        body=body,
        form=form,
        told=form.told,
        only_native=form.only_native,
        built_in=tuple(dict.fromkeys(word for word in words if word not in FREE)),
        hints=form.hints,
        stream_type=EVENTS if events else "application/json",
    )
    return replace(asked, spoken=spoken)


def read_counted(body: Any, raw_length: int, *, model: str) -> ChatRequest:
    """A countTokens body, which holds contents, or a whole request. Raises `InvalidRequest`."""
    names = [name for name in body if camel(name) == "generateContentRequest"] if type(body) is dict else []
    return read(body[names[0]] if names else body, raw_length, model=model, stream=False, events=False)


class GeminiWriter(ClientAnswer):
    """Tells one answer to a client of generateContent."""

    def foreign(self, name: bytes, event: dict[str, Any]) -> bytes:
        """Nothing a client of this protocol would understand."""
        return b""

    def ending(self, chunks: Sequence[dict[str, Any]]) -> bytes:
        """What ends the stream."""
        return self.final(chunks)


class PassingGemini(ClientAnswer):
    """Hands an answer on."""

    def __init__(self, spoken: Spoken, ours: Ours) -> None:
        super().__init__(spoken.form, id=ours.id, model=ours.model, events=spoken.stream_type == EVENTS)

    def event(self, name: str, event: dict[str, Any], raw: bytes) -> bytes:
        """An event as it goes on; from the first finish reason on they wait for the end."""
        return self.native(event)

    def final(self, usage: Mapping[str, Any] | None = None) -> bytes:  # type: ignore[override]
        """What ends the stream."""
        if self._held:
            self._held[-1] = _counted(self._held[-1], usage)
        return super().final()

    def whole(self, answer: dict[str, Any], usage: Mapping[str, Any] | None = None) -> bytes:
        """A whole body as it goes on."""
        return self.native_whole(_counted(answer, usage))


def _counted(answer: dict[str, Any], usage: Mapping[str, Any] | None) -> dict[str, Any]:
    """An answer with the counts that are billed."""
    return answer | {"usageMetadata": (answer.get("usageMetadata") or {}) | gemini_usage(usage)} if usage else answer


def _without_others_thoughts(body: dict[str, Any]) -> dict[str, Any]:
    """A body whose parts have no signatures but those of this protocol's own: the others are packed into some."""
    contents = body.get("contents")
    return {**body, "contents": [*map(_own, contents)]} if type(contents) is list else body


def _own(content: Any) -> Any:
    parts = content.get("parts") if type(content) is dict else None
    return {**content, "parts": [*map(_own_part, parts)]} if type(parts) is list else content


def _own_part(part: Any) -> Any:
    name = next((name for name in part if camel(name) == "thoughtSignature"), None) if type(part) is dict else None
    if name is None or type(part[name]) is not str or signatures.unpack(part[name]) is None:
        return part
    if any(camel(field) == "functionCall" for field in part):
        return {**part, name: signatures.NO_SIGNATURE}
    return {field: value for field, value in part.items() if field != name}


class Source(UpstreamAnswer):
    """Reads an answer as the chat form. No event says that it is over: each candidate says why it ended."""

    complete = False


class Client:
    """Clients of generateContent."""

    def writer(self, asked: ChatRequest, ours: Ours) -> GeminiWriter:
        """What tells the answer."""
        assert asked.spoken is not None
        form: ChatForm = asked.spoken.form
        return GeminiWriter(form, id=ours.id, model=ours.model, events=asked.spoken.stream_type == EVENTS)

    def status(self, error: GatewayError, dialect: Dialect) -> int:
        """The HTTP status of a failed request."""
        return error.status_in(dialect)

    def error(self, error: GatewayError, dialect: Dialect, request_id: str) -> dict[str, Any]:
        """The body of a failed request."""
        return errors.envelope(error, error.param, dialect, request_id)


class Upstream:
    """Upstreams of generateContent."""

    names_cap = False
    max_stops = 5

    def sent(self, asked: ChatRequest, asking: Asking) -> Sent:
        """The client's own body where it speaks generateContent itself, else one made of the chat form."""
        called, prefix = path(asking.model, asked.stream), f"call_{asking.ours.id}_"
        if passes(asked, asking, NAME, chat_first=CHAT_FIRST):
            spoken = asked.spoken
            assert spoken is not None
            own = native_body(spoken.body, output_cap=asking.output_cap)
            leaving = withheld(spoken, asking.fit) | (LABELS - set(asking.takes))
            own = _without_others_thoughts(without(own, leaving, camel))
            source = Source(asked.body, call_prefix=prefix)
            return Sent(called, (), asked.encoded(own), source, passing=PassingGemini(spoken, asking.ours))
        chat = offered(
            asked,
            model=asking.model,
            output_cap=asking.output_cap,
            cap_field="max_tokens",
            ask_usage=False,
            fit=asking.fit,
            prefill=asking.prefill,
        )
        ignored = tuple(
            name
            for name, value in chat.items()
            if name not in CARRIED and value is not None and value not in NOTHING.get(name, ())
        )
        if asked.cache_control and "cache_control" not in ignored:
            ignored += ("cache_control",)
        made = upstream_body(without(chat, ignored), output_cap=asking.output_cap, ability=_ability(asking.takes))
        ignored += names_of_speakers(chat["messages"])
        return Sent(called, (), asked.encoded(made), Source(chat, call_prefix=prefix), ignored=ignored)

    def counting(self, asked: ChatRequest, asking: Asking) -> Counting | None:
        """The client's contents where there is nothing else, and else its whole request."""
        spoken = asked.spoken
        if spoken is None or spoken.protocol != NAME or asked.file_ids:
            return None
        own = native_body(spoken.body)
        own = _without_others_thoughts(without(own, withheld(spoken, asking.fit) | LABELS, camel))
        if own.keys() != {"contents"}:
            model = asking.model.removeprefix("models/")
            own = {"generateContentRequest": {"model": f"models/{model}", **own}}
        called = path(asking.model, False).removesuffix("generateContent") + "countTokens"
        return Counting(called, (), asked.encoded(own), "totalTokens")

    def chat_path(self, param: str) -> str:
        """As it is: its errors name none."""
        return param

    def fault(self, status: int, headers: Mapping[str, str], body: bytes) -> UpstreamFault:
        """What an answer means whose status is not 2xx."""
        return errors.fault(status, headers, body)


@lru_cache(maxsize=1024)
def _ability(takes: tuple[str, ...]) -> Ability:
    """What a model takes, as the words of its offer's list say."""
    return Ability(
        levels=tuple(level for level in LEVELS if f"thinking_level.{level}" in takes),
        stops="always_thinks" not in takes,
        signs="thought_signatures" in takes,
        json_schemas="openapi_schemas" not in takes,
    )
