"""The OpenAI chat completions protocol, both directions, without I/O.

Here: what a client asks for (`parse`), and the body an upstream of the same protocol gets (`upstream_body`).
The answer is read by `AnswerReader`, failures by `fault_from_response`, and told by `error_event`.
"""

from dataclasses import dataclass
from typing import Any

from gateway import strict_json
from gateway.errors import InvalidRequest
from gateway.protocols.openai_chat_answer import AnswerReader
from gateway.protocols.openai_chat_faults import error_event, fault_from_response
from gateway.protocols.openai_chat_overrides import refuse_overrides

__all__ = ["AnswerReader", "ChatRequest", "error_event", "fault_from_response", "parse", "upstream_body"]

OWN_FIELDS = frozenset({"provider", "model_routing_config"})  # For the gateway; no upstream sees them.
MAX_CAP = 2**31
MAX_CHOICES = 128
MAX_STOPS = 16

_ROLES = frozenset({"developer", "system", "user", "assistant", "tool", "function"})
# An assistant's turn may have one of these in place of content.
_IN_PLACE_OF_CONTENT = ("tool_calls", "function_call", "refusal", "audio")
_NUMBERS = ("temperature", "top_p", "presence_penalty", "frequency_penalty")


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A chat request, checked. Null fields count as absent throughout.

    - `output_cap`: tokens the client allows for the answer; `max_completion_tokens` wins over `max_tokens`
    - `end_user`: who the client acts for, from `user`, `user_id` or `safety_identifier`
    - `text_bytes`: no less than the bytes of text in it: the raw body without base64 payloads of media
    - `images`, `audios`, `files`: how many such parts, for bounds per item; video counts as a file
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


class _Media:
    """Counts of media parts, and of the base64 characters in them, which are no text."""

    __slots__ = ("audios", "base64", "files", "images")

    def __init__(self) -> None:
        self.images = self.audios = self.files = self.base64 = 0


def parse(body: Any, raw_length: int) -> ChatRequest:
    """Check a parsed body; `raw_length` is its length in bytes as it came. Fields not named here pass unseen.

    Raises `InvalidRequest` with the offending `param`. Overrides of the dial are refused by name, see
    `openai_chat_overrides`.
    """
    if type(body) is not dict:
        raise _wrong("The body must be a JSON object.", None, "invalid_type")
    refuse_overrides(body)
    model = _model(body.get("model"))
    media = _Media()
    _messages(body.get("messages"), media)
    stream = _boolean(body, "stream")
    include_usage = _stream_options(body.get("stream_options"), stream)
    n = _integer(body, "n", 1, MAX_CHOICES)
    # Both caps are checked, whichever wins.
    capped = _integer(body, "max_completion_tokens", 1, MAX_CAP)
    max_tokens = _integer(body, "max_tokens", 1, MAX_CAP)
    for name in _NUMBERS:
        if (value := body.get(name)) is not None and type(value) is not int and type(value) is not float:
            raise _wrong(f"Parameter {name} is not valid: it must be a number.", name, "invalid_type")
    _stop(body.get("stop"))
    _tools(body.get("tools"))
    return ChatRequest(
        body=body,
        model=model,
        stream=stream,
        include_usage=include_usage,
        output_cap=max_tokens if capped is None else capped,
        n=1 if n is None else n,
        end_user=_end_user(body),
        metadata=_metadata(body.get("metadata")),
        text_bytes=max(0, raw_length - media.base64),
        images=media.images,
        audios=media.audios,
        files=media.files,
    )


def upstream_body(
    request: ChatRequest, *, model: str, output_cap: int | None, cap_field: str, ask_usage: bool
) -> bytes:
    """The body for an upstream: the client's with every field it had, and these changes.

    `model` is the upstream's name for it. `output_cap`, if given, replaces the client's cap under the name
    the client used, else is added as `cap_field`; of two caps the losing `max_tokens` goes. A stream is asked
    for usage, whatever the client said, unless `ask_usage` is false: then the upstream does not take
    `stream_options` at all.
    """
    body = {name: value for name, value in request.body.items() if name not in OWN_FIELDS}
    body["model"] = model
    if body.get("max_completion_tokens") is not None:
        body.pop("max_tokens", None)
        cap_field = "max_completion_tokens"
    elif body.get("max_tokens") is not None:
        cap_field = "max_tokens"
    if output_cap is not None:
        body[cap_field] = output_cap
    if request.stream and ask_usage:
        body["stream_options"] = (body.get("stream_options") or {}) | {"include_usage": True}
    else:
        body.pop("stream_options", None)
    return strict_json.dumps(body)


def _wrong(message: str, param: str | None, code: str = "invalid_value") -> InvalidRequest:
    return InvalidRequest(message, param=param, code=code)


def _missing(param: str) -> InvalidRequest:
    return _wrong(f"Parameter {param} is required.", param, "missing_required_parameter")


def _plain(text: str) -> bool:
    """Whether text is free of control characters: it goes into logs, rows and URLs."""
    return text.isprintable() or not any(c < " " or "\x7f" <= c <= "\x9f" for c in text)


def _model(model: Any) -> str:
    if model is None or model == "":
        raise _missing("model")
    if type(model) is not str:
        raise _wrong("Parameter model must be a string.", "model", "invalid_type")
    if len(model) > 256 or not _plain(model):
        raise _wrong("Parameter model must be at most 256 characters, none of them control.", "model")
    return model


def _messages(messages: Any, media: _Media) -> None:
    if messages is None:
        raise _missing("messages")
    if type(messages) is not list:
        raise _wrong("Parameter messages must be an array.", "messages", "invalid_type")
    if not messages:
        raise _wrong("Parameter messages can not be empty.", "messages")
    for at, message in enumerate(messages):
        if type(message) is not dict:
            if message is None:
                raise _wrong("Parameter messages can not contain null elements.", f"messages[{at}]")
            raise _wrong(f"messages[{at}] must be an object.", f"messages[{at}]", "invalid_type")
        role = message.get("role")
        if role is None:
            raise _missing(f"messages[{at}].role")
        if type(role) is not str or role not in _ROLES:
            known = ", ".join(sorted(_ROLES))
            raise _wrong(f"messages[{at}].role must be one of {known}.", f"messages[{at}].role")
        content = message.get("content")
        if type(content) is str:
            continue
        if type(content) is list:
            for index, part in enumerate(content):
                _part(part, f"messages[{at}].content[{index}]", media)
        elif content is not None:
            param = f"messages[{at}].content"
            raise _wrong(f"{param} must be a string or an array of parts.", param, "invalid_type")
        elif role != "assistant" or not any(message.get(name) for name in _IN_PLACE_OF_CONTENT):
            raise _wrong("Parameter messages can not contain elements without content.", f"messages[{at}].content")


def _part(part: Any, param: str, media: _Media) -> None:
    """Check and count a content part. One of unknown type is the upstream's to judge, and counts as text."""
    kind = part.get("type") if type(part) is dict else None
    if type(kind) is not str:
        raise _wrong(f"{param} must be an object with a type.", param, "invalid_type")
    if kind == "text":
        if type(part.get("text")) is not str:
            raise _wrong(f"{param}.text must be a string.", f"{param}.text", "invalid_type")
    elif kind == "image_url":
        media.images += 1
        media.base64 += _payload(_url(part, "image_url", param))
    elif kind == "input_audio":
        media.audios += 1
        audio = part.get("input_audio")
        data = audio.get("data") if type(audio) is dict else None
        if type(data) is not str:
            raise _wrong(f"{param}.input_audio.data must be a string.", f"{param}.input_audio", "invalid_type")
        media.base64 += len(data)
    elif kind == "file":
        media.files += 1
        file = part.get("file")
        if type(file) is not dict or not (file.get("file_id") or file.get("file_data")):
            raise _wrong(f"{param}.file needs file_id or file_data.", f"{param}.file")
        data = file.get("file_data")
        if type(data) is str:  # A data URL, an address, or base64 as it is.
            media.base64 += _payload(data) if ":" in data[:256] else len(data)
    elif kind == "video_url":
        media.files += 1
        media.base64 += _payload(_url(part, "video_url", param))


def _url(part: dict[str, Any], name: str, param: str) -> str:
    """The URL of a media part, which is an object with a `url` or, to some clients, the string itself."""
    url = part.get(name)
    url = url.get("url") if type(url) is dict else url
    if type(url) is not str:
        raise _wrong(f"{param}.{name}.url must be a string.", f"{param}.{name}", "invalid_type")
    return url


def _payload(url: str) -> int:
    """Characters of base64 in a data URL (RFC 2397). What is not marked as base64 counts as text."""
    head, comma, _ = url[:256].partition(",")
    if comma and head[:5].lower() == "data:" and head.lower().endswith(";base64"):
        return len(url) - len(head) - 1
    return 0


def _boolean(body: dict[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and type(value) is not bool:
        raise _wrong(f"Parameter {name} must be true or false.", name, "invalid_type")
    return bool(value)


def _integer(body: dict[str, Any], name: str, least: int, most: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if type(value) is not int:
        raise _wrong(f"Parameter {name} must be an integer.", name, "invalid_type")
    if not least <= value <= most:
        raise _wrong(f"Parameter {name} must be from {least} to {most}.", name)
    return value


def _stream_options(options: Any, stream: bool) -> bool:
    if options is None:
        return False
    if not stream:
        raise _wrong(
            "Parameter stream_options is not supported while stream is false.",
            "stream_options",
            "unsupported_parameter",
        )
    if type(options) is not dict:
        raise _wrong("Parameter stream_options must be an object.", "stream_options", "invalid_type")
    include_usage = options.get("include_usage")
    if include_usage is not None and type(include_usage) is not bool:
        param = "stream_options.include_usage"
        raise _wrong(f"Parameter {param} must be true or false.", param, "invalid_type")
    return include_usage is True


def _stop(stop: Any) -> None:
    if stop is None or type(stop) is str:
        return
    if type(stop) is not list or not all(type(sequence) is str for sequence in stop):
        raise _wrong("Parameter stop must be a string or an array of strings.", "stop", "invalid_type")
    if len(stop) > MAX_STOPS:
        raise _wrong(f"Parameter stop takes at most {MAX_STOPS} sequences.", "stop")


def _tools(tools: Any) -> None:
    if tools is not None and (type(tools) is not list or not all(type(tool) is dict for tool in tools)):
        raise _wrong("Parameter tools must be an array of objects.", "tools", "invalid_type")


def _end_user(body: dict[str, Any]) -> str | None:
    found = None
    for name in ("user", "user_id", "safety_identifier"):
        user = body.get(name)
        if user is None:
            continue
        if type(user) is not str:
            raise _wrong(f"Parameter {name} must be a string.", name, "invalid_type")
        if len(user) > 512 or not _plain(user):
            raise _wrong(f"Parameter {name} must be at most 512 characters, none of them control.", name)
        found = found or user
    return found or None


def _metadata(metadata: Any) -> dict[str, str]:
    """The client's labels: OpenAI's limits, and no control characters, since they are stored and logged."""
    if metadata is None:
        return {}
    if type(metadata) is not dict:
        raise _wrong("Parameter metadata must be an object.", "metadata", "invalid_type")
    if len(metadata) > 16:
        raise _wrong("Parameter metadata takes at most 16 pairs.", "metadata")
    for name, value in metadata.items():
        if len(name) > 64 or not _plain(name):
            raise _wrong("A key of metadata is at most 64 characters, none of them control.", "metadata")
        param = f"metadata.{name}"
        if type(value) is not str:
            raise _wrong(f"{param} must be a string.", param, "invalid_type")
        if len(value) > 512 or not _plain(value):
            raise _wrong(f"{param} must be at most 512 characters, none of them control.", param)
    return metadata
