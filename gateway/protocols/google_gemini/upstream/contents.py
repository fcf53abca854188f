"""Chat messages as Google's contents: neighbours of one role are one content, results stand in their calls' order.

What the model was signed with goes back on the part it was on, see `signatures`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.protocols.google_gemini import signatures
from gateway.protocols.google_gemini.names import Names
from gateway.protocols.google_gemini.upstream.parts import by_url, part
from gateway.protocols.openai_chat.request.checks import wrong
from gateway.protocols.openai_chat.request.foreign_clients import NO_RESULT, result_of_no_call
from gateway.wire import strict_json
from gateway.wire.errors import InvalidRequest

RAW = "arguments"  # under which arguments go that are no object
_INPUT = "input"  # the one parameter that stands for what a custom tool is given

Part = dict[str, Any]


class Contents:
    """Takes messages in order.

    - `system`: parts of the instruction: Google has one place for it, before everything
    - `contents`: the conversation

    `ids`: calls and results are sent with their ids. `signs`: the first call of each step since the user last spoke
    must be signed; one that is not gets Google's word for that.
    """

    def __init__(self, names: Names, *, ids: bool, signs: bool) -> None:
        self.system: list[Part] = []
        self.contents: list[dict[str, Any]] = []
        self._names = names
        self._ids = ids
        self._signs = signs
        self._calls: dict[str, str] = {}  # Upstream names of the calls of the last turn, by id.
        self._order: list[str] = []
        self._results: dict[str, Part] = {}
        self._told: list[Part] = []  # results of no call, which the user tells

    def take(self, messages: Sequence[dict[str, Any]]) -> None:
        """All of them. Raises `InvalidRequest`."""
        spoke = max((at for at, message in enumerate(messages) if message["role"] == "user"), default=-1)
        for at, message in enumerate(messages):
            role, path = message["role"], f"messages[{at}]"
            if role in ("tool", "function"):
                self._result(message, path)
                continue
            self._end_results()
            if role in ("system", "developer"):
                self.system += _texts(message.get("content"))
            elif role == "assistant":
                self._say("model", self._model(message, path, self._signs and at > spoke))
            else:
                self._say("user", _user(message.get("content"), f"{path}.content"))
        self._end_results()
        if not self.contents:  # Instructions alone: somebody has to say something.
            self._say("user", self.system)
            self.system = []
        if not self.contents:
            raise wrong("Parameter messages holds no text. Send some.", "messages")

    def _say(self, role: str, parts: list[Part]) -> None:
        last = self.contents[-1] if self.contents else None
        if not parts:
            return
        if last is not None and last["role"] == role and "functionResponse" not in last["parts"][0]:
            last["parts"] += parts
        else:
            self.contents.append({"role": role, "parts": parts})

    def _model(self, message: Mapping[str, Any], path: str, signs: bool) -> list[Part]:
        details = [
            entry for entry in message.get("reasoning_details") or () if entry.get("format") == signatures.FORMAT
        ]
        sealed = [entry for entry in details if entry["type"] == "reasoning.encrypted" and entry.get("data")]
        parts: list[Part] = []
        for entry in details:
            if entry["type"] == "reasoning.text":
                parts.append(
                    signatures.signed({"text": entry.get("text") or "", "thought": True}, entry.get("signature"))
                )
        calls = _called(message)
        by_id = {entry["id"]: entry["data"] for entry in sealed if entry.get("id")}
        nowhere = [entry for entry in sealed if not entry.get("id") and "span" not in entry and "image" not in entry]
        spans = [entry for entry in sealed if "span" in entry] + ([] if calls else nowhere)
        parts += signatures.text_parts(_said(message), spans)
        pictures = {entry["image"]: entry["data"] for entry in sealed if type(entry.get("image")) is int}
        images = message.get("images") or []
        if type(images) is not list:
            raise wrong(f"Parameter {path}.images must be an array.", f"{path}.images")
        for number, picture in enumerate(images):
            parts.append(signatures.signed(_picture(picture, f"{path}.images[{number}]"), pictures.get(number)))
        if message.get("audio"):
            raise wrong(f"Parameter {path}.audio names a sound that this model did not make.", f"{path}.audio")
        for number, call in enumerate(calls):
            signature = by_id.get(call["id"]) or signatures.of_call(call)
            if signature is None and number == 0:
                signature = nowhere[0]["data"] if nowhere else signatures.NO_SIGNATURE if signs else None
            parts.append(signatures.signed({"functionCall": self._call(call)}, signature))
        return parts

    def _call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        custom = call["type"] == "custom"
        inner = call[call["type"]]
        name = self._names.there(inner["name"])
        args = {_INPUT: inner["input"]} if custom else arguments(inner["arguments"])
        self._calls[call["id"]] = name
        self._order.append(call["id"])
        return ({"id": call["id"]} if self._ids else {}) | {"name": name, "args": args}

    def _result(self, message: Mapping[str, Any], path: str) -> None:
        older = message["role"] == "function"
        id = message["name"] if older else message["tool_call_id"]
        if id not in self._calls or id in self._results:
            self._told += _user([*result_of_no_call({**message, "tool_call_id": id})], f"{path}.content")
            return
        self._answer(id, "\n".join(piece["text"] for piece in _texts(message.get("content"))))

    def _answer(self, id: str, said: str) -> None:
        response = {"id": id} if self._ids else {}
        self._results[id] = {"functionResponse": response | {"name": self._calls[id], "response": _response(said)}}

    def _end_results(self) -> None:
        """Write the results, in the order of the calls; Google refuses a call without one."""
        for id in self._calls.keys() - self._results:
            self._answer(id, NO_RESULT)
        if self._order:
            self.contents.append({"role": "user", "parts": [self._results[id] for id in dict.fromkeys(self._order)]})
        told, self._told = self._told, []
        self._say("user", told)
        self._calls, self._order, self._results = {}, [], {}


def arguments(written: str) -> dict[str, Any]:
    """A call's arguments as the object that Google wants; what is none goes as text, under `RAW`."""
    try:
        read = strict_json.loads(written.encode()) if written.strip() else {}
    except (strict_json.BadJson, UnicodeEncodeError):
        read = None
    return read if type(read) is dict else {RAW: written}


def _called(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    calls = list(message.get("tool_calls") or ())
    older = message.get("function_call")
    if older and not calls:
        calls.append({"id": older["name"], "type": "function", "function": older})
    return calls


def _response(said: str) -> dict[str, Any]:
    """What a tool said as the object that Google wants: its own, or under the name Google has for an output."""
    if said.lstrip()[:1] == "{":
        try:
            read = strict_json.loads(said.encode())
        except (strict_json.BadJson, UnicodeEncodeError):
            read = None
        if type(read) is dict:
            return read
    return {"output": said}


def _texts(content: Any) -> list[Part]:
    """The texts of a content that are not empty."""
    pieces = [{"type": "text", "text": content}] if type(content) is str else content or ()
    return [{"text": piece["text"]} for piece in pieces if piece["type"] == "text" and piece["text"]]


def _user(content: Any, path: str) -> list[Part]:
    if type(content) is str:
        return [{"text": content}] if content else []
    made = (part(piece, f"{path}[{at}]") for at, piece in enumerate(content or ()))
    return [piece for piece in made if piece is not None]


def _said(message: Mapping[str, Any]) -> str:
    """An assistant's text; a refusal is what it said, too."""
    content = message.get("content")
    if type(content) is list:
        content = "".join(piece.get("text") or piece.get("refusal") or "" for piece in content)
    return f"{content or ''}{message.get('refusal') or ''}"


def _picture(picture: Any, path: str) -> Part:
    image = picture.get("image_url") if type(picture) is dict else None
    url = image.get("url") if type(image) is dict else image
    if type(url) is not str:
        raise _no_picture(path)
    return by_url(url)


def _no_picture(path: str) -> InvalidRequest:
    return wrong(f"Parameter {path} must be an object with an image_url.", path)
