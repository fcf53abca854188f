"""Parts of a message's content: a client's, as parts of the chat form, and those of the chat form for a provider.

What a part may be in a message of which role is the chat form's to check; here only what has another shape is looked
into. Files by id are the gateway's own, in both forms.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from gateway.protocols.openai_chat.request.checks import MISSING, TYPE, UNSUPPORTED, missing, shown, wrong
from gateway.protocols.openai_chat.request.parts import MEDIA_TYPES, media_type_of

Part: TypeAlias = dict[str, Any]
_EXTENSIONS = {media_type: extension for extension, media_type in reversed(MEDIA_TYPES.items())}


def chat_parts(parts: list[Any], path: str) -> list[Part]:
    """A client's parts, one for one, in the chat form. Raises `InvalidRequest` under `path`, the list's."""
    made = []
    for at, part in enumerate(parts):
        kind = part.get("type") if type(part) is dict else None
        if type(part) is not dict:
            raise wrong(f"Parameter {path}[{at}] must be an object with a type.", f"{path}[{at}]", TYPE)
        convert = _FROM_CLIENT.get(kind) if type(kind) is str else None
        if convert is None:
            param = f"{path}[{at}].type"
            known = ", ".join(_FROM_CLIENT)
            said = f"can not be {shown(kind)} here" if type(kind) is str else "is required"
            code = "invalid_value" if type(kind) is str else MISSING if kind is None else TYPE
            raise wrong(f"Parameter {param} {said}: it must be one of {known}.", param, code)
        made.append(convert(part, f"{path}[{at}]"))
    return made


def input_parts(content: Any, path: str) -> str | list[Part]:
    """Checked content of the chat form as a provider takes it in a message of the user or the developer.

    Raises `InvalidRequest` for a part that the protocol has no place for.
    """
    if type(content) is not list:
        return content or ""
    return [_for_provider(part, f"{path}[{at}]", _TO_PROVIDER) for at, part in enumerate(content)]


def output_parts(content: Any, path: str) -> list[Part]:
    """Checked content of an assistant's turn as a provider takes it back."""
    parts = [{"type": "text", "text": content}] if type(content) is str else content or []
    made = (_for_provider(part, f"{path}[{at}]", _OF_ASSISTANT) for at, part in enumerate(parts))
    return [part for part in made if part.get("text") or part.get("refusal")]


def _text(part: Part, path: str) -> Part:
    made: Part = {"type": "text", "text": part.get("text")}
    if part.get("prompt_cache_breakpoint") is not None:
        made["cache_control"] = {"type": "ephemeral"}
    return made


def _image(part: Part, path: str) -> Part:
    if part.get("file_id"):
        param = f"{path}.file_id"
        raise wrong(f"Parameter {param} is not supported: send image_url.", param, UNSUPPORTED)
    url, detail = part.get("image_url"), part.get("detail")
    if url is None:
        raise missing(f"{path}.image_url", "a URL or a data URL")
    return {"type": "image_url", "image_url": {"url": url} | ({"detail": detail} if detail is not None else {})}


def _file(part: Part, path: str) -> Part:
    url = part.get("file_url")
    if url is not None and part.get("file_data") is not None:
        raise wrong(f"Parameter {path} has file_data and a file_url. Send one.", f"{path}.file_url")
    sent = {"file_data": part.get("file_data") if url is None else url}
    sent |= {name: part.get(name) for name in ("file_id", "filename")}
    return {"type": "file", "file": {name: value for name, value in sent.items() if value is not None}}


def _audio(part: Part, path: str) -> Part:
    return {"type": "input_audio", "input_audio": part.get("input_audio")}


def _refusal(part: Part, path: str) -> Part:
    return {"type": "refusal", "refusal": part.get("refusal")}


# A client's parts by type. `text` is what some clients send for either of the two before it.
_FROM_CLIENT: Mapping[str, Callable[[Part, str], Part]] = {
    "input_text": _text,
    "output_text": _text,
    "text": _text,
    "input_image": _image,
    "input_file": _file,
    "input_audio": _audio,
    "refusal": _refusal,
}


def _for_provider(part: Part, path: str, known: Mapping[str, Callable[[Part, str], Part]]) -> Part:
    kind = part["type"]
    if kind not in known:
        param = f"{path}.type"
        raise wrong(f"Parameter {param} can not be {kind}: the provider takes no such part.", param, UNSUPPORTED)
    return known[kind](part, path)


def _input_text(part: Part, path: str) -> Part:
    made = {"type": "input_text", "text": part["text"]}
    return made | _breakpoint(part)


def _input_image(part: Part, path: str) -> Part:
    image = part["image_url"]
    made = {"type": "input_image", "image_url": image["url"], "detail": image.get("detail") or "auto"}
    return made | _breakpoint(part)


def _input_file(part: Part, path: str) -> Part:
    file = part["file"]
    data, name = file.get("file_data"), file.get("filename")
    if not data:
        raise wrong(f"Parameter {path}.file.file_id names a file that was not read.", f"{path}.file.file_id")
    if data.startswith(("https://", "http://")):
        return {"type": "input_file", "file_url": data}
    if not name:  # It is demanded beside data.
        name = f"file.{_EXTENSIONS.get(media_type_of(data, None) or '', 'txt')}"
    return {"type": "input_file", "filename": name, "file_data": data} | _breakpoint(part)


def _breakpoint(part: Part) -> Part:
    return {"prompt_cache_breakpoint": {"mode": "explicit"}} if part.get("cache_control") else {}


def _output_text(part: Part, path: str) -> Part:
    return {"type": "output_text", "text": part["text"]}


_TO_PROVIDER: Mapping[str, Callable[[Part, str], Part]] = {
    "text": _input_text,
    "image_url": _input_image,
    "file": _input_file,
}
_OF_ASSISTANT: Mapping[str, Callable[[Part, str], Part]] = {"text": _output_text, "refusal": _refusal}
