"""The fields of a request that are checked on their own, each by its row in `CHECKS`.

Ranges are those of the two documented systems and OpenAI, the widest where they differ and no dialect decides. Fields
whose inside is the provider's to judge are only looked at from outside.
"""

import re
from collections.abc import Mapping
from typing import Any

from gateway.protocols.openai_chat.request.checks import (
    MAX_LABEL,
    MISSING,
    TYPE,
    Check,
    boolean,
    fields,
    integer,
    is_name,
    label,
    mapping,
    missing,
    number,
    one_of,
    plain,
    text,
    wrong,
)
from gateway.protocols.openai_chat.request.reasoning import check_effort, check_reasoning, check_thinking

MAX_CAP = 2**31
MAX_STOP = 1024  # Characters of one stop sequence; the gateway may have to look for it.
MAX_PAIRS, MAX_KEY = 16, 64

_user_id = re.compile(r"[a-zA-Z0-9_-]*").fullmatch


def stops(value: Any, most: int) -> tuple[str, ...]:
    """The stop sequences of `stop`, at most `most`. Raises `InvalidRequest`."""
    listed = [value] if type(value) is str else value
    if type(listed) is not list or not all(type(sequence) is str for sequence in listed):
        raise wrong("Parameter stop must be a string or an array of strings.", "stop", TYPE)
    if len(listed) > most:
        raise wrong(f"Parameter stop takes at most {most} sequences. Send fewer.", "stop")
    if not all(0 < len(sequence) <= MAX_STOP for sequence in listed):
        raise wrong(f"Parameter stop must hold sequences of 1 to {MAX_STOP} characters.", "stop")
    return tuple(listed)


def end_user(body: Mapping[str, Any]) -> str | None:
    """Whom the client acts for: the first of three names that is not empty. The fields have been checked."""
    return body.get("user") or body.get("user_id") or body.get("safety_identifier") or None


def web_search(value: Any) -> dict[str, Any] | None:
    """`web_search_options`, checked, as the protocol has it: the place in its own object. None: it was already so."""
    place = value.get("user_location")
    if place is None or place.get("approximate") is not None:
        return None
    inner = {name: inner for name, inner in place.items() if name != "type"}
    return {**value, "user_location": {"type": "approximate", "approximate": inner}}


def _check_metadata(value: Any) -> None:
    """The client's labels: OpenAI's limits, and no control characters, since they are stored and logged."""
    if type(value) is not dict:
        raise wrong("Parameter metadata must be an object.", "metadata", TYPE)
    if len(value) > MAX_PAIRS:
        raise wrong(f"Parameter metadata takes at most {MAX_PAIRS} pairs.", "metadata")
    for name, inner in value.items():
        if len(name) > MAX_KEY or not plain(name):
            raise wrong(f"A key of metadata is at most {MAX_KEY} characters, none of them control.", "metadata")
        param = f"metadata.{name}"
        if type(inner) is not str:
            raise wrong(f"Parameter {param} must be a string.", param, TYPE)
        if len(inner) > MAX_LABEL or not plain(inner):
            raise wrong(f"Parameter {param} must be at most {MAX_LABEL} characters, none of them control.", param)


def _check_logit_bias(value: Any) -> None:
    if type(value) is not dict:
        raise wrong("Parameter logit_bias must be an object of token ids and biases.", "logit_bias", TYPE)
    for bias in value.values():
        if type(bias) is not int and type(bias) is not float:
            raise wrong("Parameter logit_bias must hold numbers from -100 to 100.", "logit_bias", TYPE)
        if not -100 <= bias <= 100:
            raise wrong("Parameter logit_bias must hold numbers from -100 to 100.", "logit_bias")


def _check_user_id(value: Any) -> None:
    if type(value) is not str:
        raise wrong("Parameter user_id must be a string.", "user_id", TYPE)
    if len(value) > MAX_LABEL or not _user_id(value):
        raise wrong(
            f"Parameter user_id must be at most {MAX_LABEL} letters, digits, underscores and dashes.", "user_id"
        )


def _check_modalities(value: Any) -> None:
    if type(value) is not list or not all(type(modality) is str for modality in value):
        raise wrong("Parameter modalities must be an array of strings, such as text and audio.", "modalities", TYPE)


_check_schema = fields(
    "response_format.json_schema",
    {
        "schema": mapping("response_format.json_schema.schema"),
        "strict": boolean("response_format.json_schema.strict"),
        "description": text("response_format.json_schema.description"),
    },
)


def _check_response_format(value: Any) -> None:
    if type(value) is not dict:
        raise wrong("Parameter response_format must be an object.", "response_format", TYPE)
    kind = value.get("type")
    if kind == "json_schema":
        schema, path = value.get("json_schema"), "response_format.json_schema"
        if schema is None:
            raise missing(path, "an object with a name and a schema")
        _check_schema(schema)
        name = schema.get("name")
        if type(name) is not str or not is_name(name):
            code = MISSING if name is None else TYPE if type(name) is not str else "invalid_value"
            rule = "must be 1 to 64 letters, digits, underscores and dashes"
            raise wrong(f"Parameter {path}.name {rule}.", f"{path}.name", code)
    elif kind != "text" and kind != "json_object":
        code = MISSING if kind is None else "invalid_value"
        param = "response_format.type"
        raise wrong(f"Parameter {param} must be text, json_object or json_schema.", param, code)


def _place(path: str) -> dict[str, Check]:
    return {name: text(f"{path}.{name}") for name in ("city", "country", "region", "timezone")}


_LOCATION = "web_search_options.user_location"
_check_location = fields(
    _LOCATION,
    {
        "type": one_of(f"{_LOCATION}.type", ("approximate",)),
        "approximate": fields(f"{_LOCATION}.approximate", _place(f"{_LOCATION}.approximate")),
        **_place(_LOCATION),
    },
    required=("type",),
)

CHECKS: Mapping[str, Check] = {
    "max_completion_tokens": integer("max_completion_tokens", 1, MAX_CAP),
    "max_tokens": integer("max_tokens", 1, MAX_CAP),
    "top_p": number("top_p", 0, 1),
    "frequency_penalty": number("frequency_penalty", -2, 2),
    "presence_penalty": number("presence_penalty", -2, 2),
    "seed": integer("seed", -(2**63), 2**63 - 1),
    "logit_bias": _check_logit_bias,
    "logprobs": boolean("logprobs"),
    "top_logprobs": integer("top_logprobs", 0, 20),
    "parallel_tool_calls": boolean("parallel_tool_calls"),
    "reasoning_effort": check_effort,
    "reasoning": check_reasoning,
    "thinking": check_thinking,
    "include_reasoning": boolean("include_reasoning"),
    "usage": fields("usage", {"include": boolean("usage.include")}, required=("include",)),
    "stream_options": fields(
        "stream_options",
        {
            "include_usage": boolean("stream_options.include_usage"),
            "include_obfuscation": boolean("stream_options.include_obfuscation"),
        },
    ),
    "verbosity": one_of("verbosity", ("low", "medium", "high")),
    "web_search_options": fields(
        "web_search_options",
        {
            "search_context_size": one_of("web_search_options.search_context_size", ("low", "medium", "high")),
            "user_location": _check_location,
        },
    ),
    "response_format": _check_response_format,
    "metadata": _check_metadata,
    "user": label("user"),
    "user_id": _check_user_id,
    "safety_identifier": label("safety_identifier"),
    "prompt_cache_key": label("prompt_cache_key"),
    "prompt_cache_retention": label("prompt_cache_retention"),
    "store": boolean("store"),
    "service_tier": label("service_tier"),
    "prediction": mapping("prediction"),
    "audio": mapping("audio"),
    "modalities": _check_modalities,
}
