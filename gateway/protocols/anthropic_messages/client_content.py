"""The conversation of a client's request, block by block, as messages of the chat form.

A turn of this protocol is a list of blocks. Tools' results in it become messages of their own, before the rest of the
turn, since they answer the turn before; a picture or document in a result goes behind them, as there is no place for it
in a result of the chat form. What an assistant thought becomes `reasoning_details` (`thoughts`), what it called
`tool_calls`. A block that only this protocol knows is left out and named (`only_native`), so that an offer of another
one is not asked.
"""

from collections.abc import Callable, Mapping
from typing import Any

from gateway.protocols.anthropic_messages.forms import thoughts
from gateway.protocols.anthropic_messages.forms.arguments import to_arguments
from gateway.protocols.anthropic_messages.forms.media import PDF, data_url
from gateway.protocols.anthropic_messages.forms.names import MAX_NAME, fitted
from gateway.protocols.openai_chat.request.checks import TYPE, check_cache_control, missing, wrong
from gateway.protocols.openai_chat.request.foreign_forms import FAILED
from gateway.wire.errors import InvalidRequest

Parts = list[dict[str, Any]]


def breakpoint_of(cache_control: Mapping[str, Any]) -> dict[str, Any]:
    """A checked cache breakpoint as the chat form has it."""
    return {name: cache_control[name] for name in ("type", "ttl") if cache_control.get(name) is not None}


class Conversation:
    """Takes a client's turns in order.

    - `messages`: of the chat form
    - `places`: for each of them, the path of what it was made of
    - `only_native`: paths of what only an offer of this protocol can be sent
    - `names_files`: some file is named by its id
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        """`names` are those of the client's tools that the chat form has others for."""
        self.messages: list[dict[str, Any]] = []
        self.places: list[str] = []
        self.only_native: list[str] = []
        self.names_files = False
        self._names = names

    def system(self, content: Any, path: str) -> None:
        """What instructs the model. Raises `InvalidRequest`."""
        parts = [self._text(block, at) for block, at in _blocks(content, path, ("text",))]
        if parts or type(content) is str:
            self._add({"role": "system", "content": content if type(content) is str else parts}, path)

    def take(self, message: Any, path: str) -> None:
        """One turn. Raises `InvalidRequest`."""
        if type(message) is not dict:
            raise wrong(f"Parameter {path} must be an object.", path, TYPE)
        role, content = message.get("role"), message.get("content")
        if content is None:
            raise missing(f"{path}.content", "what is said")
        if role == "system":
            self.system(content, f"{path}.content")
        elif role == "user":
            self._user(content, f"{path}.content")
        elif role == "assistant":
            self._assistant(content, f"{path}.content")
        elif role is None:
            raise missing(f"{path}.role", "who speaks")
        else:
            raise wrong(f"Parameter {path}.role must be user, assistant or system.", f"{path}.role")

    def cache_last(self, cache_control: Mapping[str, Any]) -> None:
        """Puts a breakpoint behind the last text of the conversation, if it ends in one."""
        last = self.messages[-1] if self.messages else {}
        content = last.get("content")
        if type(content) is str and content:
            last["content"] = content = [{"type": "text", "text": content}]
        if type(content) is list and content and content[-1]["type"] == "text":
            content[-1].setdefault("cache_control", breakpoint_of(cache_control))

    def _add(self, message: dict[str, Any], path: str) -> None:
        self.messages.append(message)
        self.places.append(path)

    def _user(self, content: Any, path: str) -> None:
        if type(content) is str:
            self._add({"role": "user", "content": content}, path)
            return
        said: Parts = []
        behind: Parts = []
        for block, at in _blocks(content, path):
            if block["type"] == "tool_result":
                self._result(block, at, behind)
            else:
                said += self._parts(block, at)
        if said or behind or not content:
            self._add({"role": "user", "content": [*behind, *said] or ""}, path)

    def _result(self, block: dict[str, Any], path: str, behind: Parts) -> None:
        """A tool's result as a message; pictures and documents in it are put `behind`, under a line that says whose."""
        id = _string(block, "tool_use_id", path, "the id of the call it answers")
        content = block.get("content")
        texts: Parts = []
        others: Parts = []
        if type(content) is str:
            texts = [{"type": "text", "text": content}] if content else []
        elif content is not None:
            for inner, at in _blocks(content, f"{path}.content"):
                for part in self._parts(inner, at):
                    (texts if part["type"] == "text" else others).append(part)
        if (failed := block.get("is_error")) is not None and type(failed) is not bool:
            raise wrong(f"Parameter {path}.is_error must be true or false.", f"{path}.is_error", TYPE)
        if others:
            mark = f"Content of the result of {id}:"
            texts = texts or [{"type": "text", "text": "The result follows in the next message."}]
            behind += [{"type": "text", "text": mark}, *others]
        if failed:
            texts = [{"type": "text", "text": FAILED}, *texts]
        if cache := _cache(block, path):
            texts = texts or [{"type": "text", "text": ""}]
            texts[-1] = {**texts[-1], "cache_control": cache}
        plain = len(texts) < 2 and not failed and not cache
        text = texts[0]["text"] if texts else ""
        self._add({"role": "tool", "tool_call_id": id, "content": text if plain else texts}, path)

    def _assistant(self, content: Any, path: str) -> None:
        if type(content) is str:
            self._add({"role": "assistant", "content": content}, path)
            return
        said: Parts = []
        details: list[dict[str, Any]] = []
        calls: list[dict[str, Any]] = []
        for block, at in _blocks(content, path):
            kind = block["type"]
            if kind == "tool_use":
                calls.append(self._call(block, at))
            elif kind in thoughts.THINKING:
                details.append(_thought(block, at, len(details)))
            elif kind == "text":
                said.append(self._text(block, at))
            else:
                self.only_native.append(f"{at}.type")
        message: dict[str, Any] = {"role": "assistant", "content": said or (None if calls else "")}
        if details:
            message["reasoning_details"] = details
        if calls:
            message["tool_calls"] = calls
        self._add(message, path)

    def _call(self, block: dict[str, Any], path: str) -> dict[str, Any]:
        id = _string(block, "id", path, "the id of the call")
        name = _string(block, "name", path, "the name of the tool")
        given = block.get("input")
        if type(given) is not dict:
            raise wrong(f"Parameter {path}.input must be an object.", f"{path}.input", TYPE)
        function = {"name": self._names.get(name) or fitted(name, MAX_NAME), "arguments": to_arguments(given)}
        call: dict[str, Any] = {"id": id, "type": "function", "function": function}
        if cache := _cache(block, path):
            call["cache_control"] = cache
        return call

    def _text(self, block: dict[str, Any], path: str) -> dict[str, Any]:
        part: dict[str, Any] = {"type": "text", "text": _string(block, "text", path, "a string", empty=True)}
        if cache := _cache(block, path):
            part["cache_control"] = cache
        return part

    def _parts(self, block: dict[str, Any], path: str) -> Parts:
        """A block of a user's turn, or of a result, as parts of the chat form."""
        if block["type"] == "container_upload":
            raise wrong(
                f"Parameter {path}.file_id names a file at a provider. Send the file itself.", f"{path}.file_id"
            )
        reader = _USER.get(block["type"])
        if reader is None:
            self.only_native.append(f"{path}.type")
            return []
        return reader(self, block, path)

    def _texts(self, block: dict[str, Any], path: str) -> Parts:
        return [self._text(block, path)]

    def _image(self, block: dict[str, Any], path: str) -> Parts:
        source = _source(block, path)
        if block.get("transformations"):
            self.only_native.append(f"{path}.transformations")
        if source["type"] == "file":
            return [self._file(source, path)]
        return [{"type": "image_url", "image_url": {"url": _url(source, f"{path}.source")}}]

    def _document(self, block: dict[str, Any], path: str) -> Parts:
        source, title = _source(block, path), block.get("title")
        self._note_citations(block, path)
        heading = [text for text in (title, block.get("context")) if type(text) is str and text]
        above: Parts = [{"type": "text", "text": "\n".join(heading)}] if heading else []
        kind = source["type"]
        if kind == "text":
            return [*above, {"type": "text", "text": _string(source, "data", f"{path}.source", "a string")}]
        if kind == "content":
            for inner, at in _blocks(source.get("content"), f"{path}.source.content"):
                above += self._parts(inner, at)
            return above
        if kind == "file":
            return [*above, self._file(source, path)]
        name = title if type(title) is str and title.lower().endswith(".pdf") else "document.pdf"
        return [*above, {"type": "file", "file": {"filename": name, "file_data": _url(source, f"{path}.source")}}]

    def _search_result(self, block: dict[str, Any], path: str) -> Parts:
        self._note_citations(block, path)
        heading = "\n".join(_string(block, name, path, "a string") for name in ("title", "source"))
        texts = [self._text(inner, at) for inner, at in _blocks(block.get("content"), f"{path}.content", ("text",))]
        return [{"type": "text", "text": heading}, *texts]

    def _file(self, source: dict[str, Any], path: str) -> dict[str, Any]:
        self.names_files = True
        return {"type": "file", "file": {"file_id": _string(source, "file_id", f"{path}.source", "a file's id")}}

    def _note_citations(self, block: dict[str, Any], path: str) -> None:
        if type(citations := block.get("citations")) is dict and citations.get("enabled"):
            self.only_native.append(f"{path}.citations")


_USER: Mapping[str, Callable[[Conversation, dict[str, Any], str], Parts]] = {
    "text": Conversation._texts,
    "image": Conversation._image,
    "document": Conversation._document,
    "search_result": Conversation._search_result,
}


def _blocks(content: Any, path: str, kinds: tuple[str, ...] = ()) -> list[tuple[dict[str, Any], str]]:
    """Blocks with their paths; a string is none. `kinds`: the only types that may be there. Raises `InvalidRequest`."""
    if type(content) is str:
        return []
    if type(content) is not list:
        raise wrong(f"Parameter {path} must be a string or an array of blocks.", path, TYPE)
    for at, block in enumerate(content):
        if type(block) is not dict:
            raise wrong(f"Parameter {path}[{at}] must be an object with a type.", f"{path}[{at}]", TYPE)
        kind = block.get("type")
        if type(kind) is not str:
            if kind is None:
                raise missing(f"{path}[{at}].type", "what kind of block it is")
            raise wrong(f"Parameter {path}[{at}].type must be a string.", f"{path}[{at}].type", TYPE)
        if kinds and kind not in kinds:
            raise wrong(f"Parameter {path}[{at}].type must be {' or '.join(kinds)} here.", f"{path}[{at}].type")
    return [(block, f"{path}[{at}]") for at, block in enumerate(content)]


def _source(block: dict[str, Any], path: str) -> dict[str, Any]:
    source = block.get("source")
    if type(source) is not dict:
        if source is None:
            raise missing(f"{path}.source", "an object with a type")
        raise wrong(f"Parameter {path}.source must be an object.", f"{path}.source", TYPE)
    kinds = ("base64", "url", "file", "text", "content") if block["type"] == "document" else ("base64", "url", "file")
    if source.get("type") not in kinds:
        raise wrong(f"Parameter {path}.source.type must be one of {', '.join(kinds)}.", f"{path}.source.type")
    return source


def _url(source: dict[str, Any], path: str) -> str:
    if source["type"] == "url":
        return _string(source, "url", path, "an http(s) URL")
    kind = _string(source, "media_type", path, f"such as image/png or {PDF}")
    return data_url(kind, _string(source, "data", path, "base64"))


def _thought(block: dict[str, Any], path: str, index: int) -> dict[str, Any]:
    if block["type"] == "thinking":
        _string(block, "thinking", path, "a string", empty=True)
        proof = "signature"
    else:
        proof = "data"
    _string(block, proof, path, "a string", empty=proof == "signature")
    try:
        return thoughts.to_entry(block, index)
    except thoughts.Unreadable:
        raise wrong(f"Parameter {path}.{proof} was changed. Send it as it came.", f"{path}.{proof}") from None


def _cache(block: dict[str, Any], path: str) -> dict[str, Any] | None:
    if (cache := block.get("cache_control")) is None:
        return None
    check_cache_control(cache, f"{path}.cache_control")
    return breakpoint_of(cache)


def _string(holder: dict[str, Any], name: str, path: str, what: str, *, empty: bool = False) -> str:
    value = holder.get(name)
    if type(value) is not str:
        raise _no_string(value, f"{path}.{name}", what)
    if not value and not empty:
        raise missing(f"{path}.{name}", what)
    return value


def _no_string(value: Any, param: str, what: str) -> InvalidRequest:
    if value is None:
        return missing(param, what)
    return wrong(f"Parameter {param} must be a string: {what}.", param, TYPE)
