"""A client's generateContent body, strictly checked, as a chat body; and its countTokens body.

What the chat form has no place for is not refused here but named (`ChatForm.only_native`): an offer that speaks this
protocol can take it. What is kept in an account at the provider (`cachedContent`, its files) is refused: the account is
the gateway's, shared by all tenants.

Names come in camel or snake case, as Google takes both.
"""

from dataclasses import dataclass
from typing import Any

from gateway.protocols.google_gemini.client.contents import Conversation
from gateway.protocols.google_gemini.client.fields import flag, listed, named, text, word
from gateway.protocols.google_gemini.client.tools import Tools, schema
from gateway.protocols.google_gemini.names import Names, is_chats
from gateway.protocols.openai_chat.request.checks import TYPE, missing, shown, wrong

# Fields of `generationConfig` whose value is that of a chat's field. Its check is the chat form's.
_SAME = {
    "temperature": "temperature",
    "topP": "top_p",
    "topK": "top_k",
    "candidateCount": "n",
    "maxOutputTokens": "max_tokens",
    "stopSequences": "stop",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
    "seed": "seed",
    "responseLogprobs": "logprobs",
    "logprobs": "top_logprobs",
}
_HINTS = ("top_k",)
_SCHEMAS = {"responseSchema": True, "responseJsonSchema": False}  # of which kind
_EFFORTS = {"MINIMAL": "minimal", "LOW": "low", "MEDIUM": "medium", "HIGH": "high", "XHIGH": "xhigh", "MAX": "max"}
_MODALITIES = ("TEXT", "IMAGE", "MODALITY_UNSPECIFIED")
_TIERS = {"STANDARD": "default", "DEFAULT": "default", "FLEX": "flex", "PRIORITY": "priority"}
_LOOSE = ("BLOCK_NONE", "OFF", "HARM_BLOCK_THRESHOLD_UNSPECIFIED")  # A tuple: it may not be hashable.

_PATHS = {chat: f"generationConfig.{name}" for name, chat in _SAME.items()} | {
    "messages": "contents",
    "max_tokens": "generationConfig.maxOutputTokens",
    "max_completion_tokens": "generationConfig.maxOutputTokens",
    "reasoning": "generationConfig.thinkingConfig",
    "response_format": "generationConfig.responseSchema",
    "modalities": "generationConfig.responseModalities",
    "tool_choice": "toolConfig.functionCallingConfig",
    "web_search_options": "tools.googleSearch",
    "metadata": "labels",
    "service_tier": "serviceTier",
}


@dataclass(frozen=True, slots=True)
class ChatForm:
    """A client's body in the chat form.

    - `body`: what `openai_chat.parse` takes
    - `only_native`: paths of what only an offer of this same protocol can take
    - `names`: functions that the client knows by other names than the chat form
    - `hints`: fields of the body that OpenAI's protocol lacks; a server that does not list them may refuse them
    - `shows_thoughts`: it wants to see what the model thought
    - `places`: where messages and their parts came from, by their paths in the chat form
    """

    body: dict[str, Any]
    only_native: tuple[str, ...]
    names: Names
    hints: tuple[str, ...]
    shows_thoughts: bool
    places: dict[str, str]

    def told(self, param: str | None) -> str | None:
        """The path of a chat body's parameter in the client's own body, as exactly as it is known."""
        rest = param
        while rest:
            if (place := self.places.get(rest) or _PATHS.get(rest)) is not None:
                return place
            rest = rest[: max(rest.rfind("."), rest.rfind("["), 0)]
        return param


def chat_form(body: Any, *, model: str, stream: bool) -> ChatForm:
    """The chat form of a body; `model` and `stream` are of its path. Raises `InvalidRequest`."""
    if type(body) is not dict:
        raise wrong("The body must be a JSON object.", None, TYPE)
    fields = named(body, "")
    names = Names(is_chats)
    talk, tools = Conversation(names), Tools(names)
    _refuse_kept(fields)
    if "systemInstruction" in fields:
        talk.add_system(fields.pop("systemInstruction"))
    if "contents" not in fields:
        raise missing("contents", "what is said")
    contents = fields.pop("contents")
    for at, content in enumerate([contents] if type(contents) is str else listed(contents, "contents")):
        talk.add(content, at)
    if not any(message["role"] != "system" for message in talk.messages):
        raise wrong("Parameter contents must hold what is said.", "contents")
    tools.read(fields.pop("tools", None), fields.pop("toolConfig", None))
    made: dict[str, Any] = {"model": model, "messages": talk.messages, **tools.fields}
    only_native = [*talk.only_native, *tools.only_native]
    config = named(fields.pop("generationConfig", {}), "generationConfig")
    shows_thoughts = _think(config.pop("thinkingConfig", None), made)
    only_native += _configure(config, made)
    only_native += _rest(fields, made, model)
    if stream:
        made |= {"stream": True, "stream_options": {"include_usage": True}}
    hints = tuple(name for name in _HINTS if name in made)
    return ChatForm(made, tuple(only_native), names, hints, shows_thoughts, talk.places)


def _refuse_kept(fields: dict[str, Any]) -> None:
    if fields.get("cachedContent"):
        raise wrong(
            "Parameter cachedContent names what is kept in an account at a provider. Send the content itself.",
            "cachedContent",
            "unsupported_parameter",
        )


def _think(config: Any, made: dict[str, Any]) -> bool:
    """Write `thinkingConfig` into the chat body; gives whether thoughts are to be shown."""
    if config is None:
        return False
    path = "generationConfig.thinkingConfig"
    fields = named(config, path)
    shows = "includeThoughts" in fields and flag(fields["includeThoughts"], f"{path}.includeThoughts")
    budget, level = fields.get("thinkingBudget"), fields.get("thinkingLevel")
    wish: dict[str, Any] = {"enabled": True} if shows else {}
    if level is not None:
        if budget is not None:
            raise wrong(f"Parameter {path} has thinkingLevel and thinkingBudget. Send one.", f"{path}.thinkingBudget")
        effort = _EFFORTS.get(word(level, f"{path}.thinkingLevel"))
        if effort is not None:
            wish = {"enabled": True, "effort": effort}
        elif word(level, path) != "THINKING_LEVEL_UNSPECIFIED":
            param = f"{path}.thinkingLevel"
            raise wrong(f"Parameter {param} must be one of {', '.join(_EFFORTS)}.", param)
    elif budget is not None:
        if type(budget) is not int or budget < -1:
            param = f"{path}.thinkingBudget"
            raise wrong(f"Parameter {param} must be an integer: tokens, 0 for none, -1 for the model's choice.", param)
        wish = {"enabled": budget != 0} | ({"max_tokens": budget} if budget > 0 else {})
    if wish:
        made["reasoning"] = wish
    return shows


def _configure(config: dict[str, Any], made: dict[str, Any]) -> list[str]:
    """Write the rest of `generationConfig` into the chat body; gives the paths of what has no place there."""
    for name, chat in _SAME.items():
        if name in config:
            made[chat] = config.pop(name)
    if made.get("logprobs") is not True:
        made.pop("top_logprobs", None)  # a count of what was not asked for
    only_native = _answer_format(config, made)
    modalities = config.pop("responseModalities", None)
    if modalities is not None:
        path = "generationConfig.responseModalities"
        words = [word(modality, path) for modality in listed(modalities, path)]
        if any(modality not in _MODALITIES for modality in words):
            only_native.append(path)
        elif "IMAGE" in words:
            made["modalities"] = [modality.lower() for modality in words]
    if config.get("mediaResolution") == "MEDIA_RESOLUTION_UNSPECIFIED":
        del config["mediaResolution"]
    return only_native + [f"generationConfig.{shown(name)}" for name in config]


def _answer_format(config: dict[str, Any], made: dict[str, Any]) -> list[str]:
    path = "generationConfig"
    kind = text(config.pop("responseMimeType", "text/plain"), f"{path}.responseMimeType").lower()
    given = [(name, openapi, config.pop(name)) for name, openapi in _SCHEMAS.items() if name in config]
    if len(given) > 1:
        raise wrong(f"Parameter {path} has responseSchema and responseJsonSchema. Send one.", f"{path}.responseSchema")
    if kind not in ("text/plain", "application/json"):
        return [f"{path}.responseMimeType"]
    for name, openapi, value in given:
        if kind != "application/json":
            raise wrong(f"Parameter {path}.{name} needs responseMimeType application/json.", f"{path}.{name}")
        asked = {"name": "response", "schema": schema(value, f"{path}.{name}", openapi)}
        made["response_format"] = {"type": "json_schema", "json_schema": asked}
    if kind == "application/json" and not given:
        made["response_format"] = {"type": "json_object"}
    return []


def _rest(fields: dict[str, Any], made: dict[str, Any], model: str) -> list[str]:
    """The further fields of a body; gives the paths of those that the chat form has no place for."""
    same = fields.pop("model", None)
    if same is not None and text(same, "model").removeprefix("models/") != model:
        raise wrong("Parameter model is not the model of the path. Leave it out.", "model")
    if "labels" in fields:
        made["metadata"] = fields.pop("labels")
    if "serviceTier" in fields:
        tier = word(fields.pop("serviceTier"), "serviceTier").removeprefix("SERVICE_TIER_")
        if tier != "UNSPECIFIED":
            made["service_tier"] = _TIERS.get(tier, tier.lower())
    if "store" in fields:
        made["store"] = fields.pop("store")
    if "safetySettings" in fields:
        settings = [named(one, "safetySettings") for one in listed(fields["safetySettings"], "safetySettings")]
        if all(setting.get("threshold") in _LOOSE for setting in settings):
            del fields["safetySettings"]  # filters that others do not have
    return [shown(name) for name in fields]
