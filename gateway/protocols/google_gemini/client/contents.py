"""A client's `systemInstruction` and `contents` as chat messages.

A call and its result find each other by id, and where a side sent none by name and order, as Google matches them; a
call without an id gets one from its place, which stays what it is while the conversation grows.
"""

from collections import deque
from typing import Any

from gateway.protocols.google_gemini import signatures
from gateway.protocols.google_gemini.client.fields import flag, listed, named, text
from gateway.protocols.google_gemini.client.parts import file_data, inline_data
from gateway.protocols.google_gemini.names import Names
from gateway.protocols.openai_chat.request.checks import missing, wrong
from gateway.wire import strict_json

_ROLES = {"user": "user", "function": "user", "tool": "user", "model": "assistant"}
_DATA = (
    *("text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode"),
    *("codeExecutionResult", "toolCall", "toolResponse"),
)
_MEDIA = {"inlineData": inline_data, "fileData": file_data}
_PLAIN = frozenset({*_DATA[:5], "thought", "thoughtSignature"})
# Only Google has them; on a part they mean nothing to another provider.
_LABELS = frozenset({"partMetadata"})


class Conversation:
    """Messages, made content by content.

    - `messages`: of a chat
    - `places`: where each of them, and of their parts, came from, by its path in the chat form
    - `only_native`: paths of what the chat form has no place for
    """

    def __init__(self, names: Names) -> None:
        self.messages: list[dict[str, Any]] = []
        self.places: dict[str, str] = {}
        self.only_native: list[str] = []
        self._names = names
        self._open: dict[str, deque[str]] = {}  # Ids of the calls of the last turn by name,
        self._waiting: set[str] = set()  # and those that have no result yet.
        self._heard = True  # Somebody has spoken since.
        self._turn = _Turn()  # The model's last one, which is a message once there is something in it.
        self._told = False

    def add_system(self, instruction: Any) -> None:
        """The `systemInstruction`. Raises `InvalidRequest`."""
        path = "systemInstruction"
        if type(instruction) is str:
            instruction = {"parts": [{"text": instruction}]}
        fields = named(instruction, path)
        texts = []
        for at, part in enumerate(listed(fields.get("parts", []), f"{path}.parts")):
            inner = named(part, f"{path}.parts[{at}]")
            if "text" not in inner:
                raise missing(f"{path}.parts[{at}].text", "an instruction is text")
            texts.append({"type": "text", "text": text(inner["text"], f"{path}.parts[{at}].text")})
        if texts:
            self._say({"role": "system", "content": _plain(texts)}, path)

    def add(self, content: Any, at: int) -> None:
        """One of the `contents`. Raises `InvalidRequest`."""
        path = f"contents[{at}]"
        if type(content) is str:
            content = {"parts": [{"text": content}]}
        fields = named(content, path)
        role = _ROLES.get(text(fields.get("role", "user"), f"{path}.role").lower() or "user")
        if role is None:
            raise wrong(f"Parameter {path}.role must be user or model.", f"{path}.role")
        parts = listed(fields.get("parts", []), f"{path}.parts")
        read = [(self._part(part, f"{path}.parts[{n}]"), f"{path}.parts[{n}]") for n, part in enumerate(parts)]
        if role == "assistant":
            self._model(read, path, at)
        elif read:
            self._user(read, path)
        else:
            raise wrong(f"Parameter {path}.parts must hold at least one part.", f"{path}.parts")

    def _part(self, part: Any, path: str) -> dict[str, Any]:
        if type(part) is str:
            part = {"text": part}
        fields = named(part, path)
        data = [name for name in _DATA if name in fields]
        if len(data) > 1 and "text" in data and not fields["text"]:
            del fields["text"]  # some clients leave an empty one beside a call
        elif len(data) > 1:
            raise wrong(f"Parameter {path} holds {' and '.join(data)}. Send a part for each.", path)
        self.only_native += [f"{path}.{name}" for name in fields if name not in _PLAIN and name not in _LABELS]
        return fields

    def _say(self, message: dict[str, Any], path: str, parts: list[str] | None = None) -> None:
        where = f"messages[{len(self.messages)}]"
        self.places[where] = path
        for at, part in enumerate(parts or ()):
            self.places[f"{where}.content[{at}]"] = part
        self.messages.append(message)

    def _user(self, read: list[tuple[dict[str, Any], str]], path: str) -> None:
        """Results come first, each as its own message: they answer the turn before."""
        self._heard = True
        said: list[dict[str, Any]] = []
        places: list[str] = []
        for part, where in read:
            if "functionResponse" in part:
                media = self._result(part["functionResponse"], f"{where}.functionResponse")
                said += media
                places += [where] * len(media)
                continue
            made = self._said(part, where)
            if made is not None:
                said.append(made)
                places.append(where)
        if said:
            self._say({"role": "user", "content": _plain(said)}, path, places)

    def _said(self, part: dict[str, Any], where: str) -> dict[str, Any] | None:
        """A part that is no call, result or thought; None for one of Google's alone."""
        if "text" in part:
            return {"type": "text", "text": text(part["text"], f"{where}.text")}
        for name, reader in _MEDIA.items():
            if name in part:
                return reader(part[name], f"{where}.{name}")
        return None

    def _result(self, response: Any, path: str) -> list[dict[str, Any]]:
        """The message of a tool's result; gives the media in it, for which only a user's message has room."""
        fields = named(response, path)
        name, id = text(fields.get("name", ""), f"{path}.name"), text(fields.get("id", ""), f"{path}.id")
        call = self._called(id, name)
        if call is None:
            raise wrong(f"Parameter {path} answers no functionCall of the turn before it.", path)
        self.only_native += [f"{path}.{field}" for field in fields if field in ("scheduling", "willContinue")]
        given = fields.get("response", {})
        if type(given) is not dict:
            raise wrong(f"Parameter {path}.response must be an object.", f"{path}.response")
        output = given.get("output") if len(given) == 1 else None
        content = output if type(output) is str else strict_json.dumps(given).decode()
        self._say({"role": "tool", "tool_call_id": call, "content": content}, path)
        media = []
        for at, part in enumerate(listed(fields.get("parts", []), f"{path}.parts")):
            where = f"{path}.parts[{at}]"
            made = self._said(named(part, where), where)
            if made is None:
                raise wrong(f"Parameter {where} must hold inlineData or fileData.", where)
            media.append(made)
        return media

    def _called(self, id: str, name: str) -> str | None:
        """The id of the call that a result answers: that of this id, else the first of this name."""
        if id in self._waiting:
            self._waiting.discard(id)
            return id
        ids = self._open.get(name)
        while ids:
            if (first := ids.popleft()) in self._waiting:
                self._waiting.discard(first)
                return first
        return None

    def _model(self, read: list[tuple[dict[str, Any], str]], path: str, at: int) -> None:
        """Contents of the model's that follow each other are one turn: Google's SDKs keep each event of a stream."""
        if self._heard:
            self._open, self._waiting, self._heard = {}, set(), False
            self._turn, self._told = _Turn(), False
        turn = self._turn
        for number, (part, where) in enumerate(read):
            signature = part.get("thoughtSignature")
            if signature is not None:
                text(signature, f"{where}.thoughtSignature")
            if part.get("thought") is not None and flag(part["thought"], f"{where}.thought"):
                turn.think(text(part.get("text", ""), f"{where}.text"), signature)
            elif "functionCall" in part:
                call = self._call(part["functionCall"], f"{where}.functionCall", f"call_{at}_{number}")
                self._open.setdefault(self._names.back(call["function"]["name"]), deque()).append(call["id"])
                self._waiting.add(call["id"])
                turn.call(call, signature)
            elif "text" in part:
                turn.say(text(part["text"], f"{where}.text"), signature)
            elif "functionResponse" in part:
                raise wrong(f"Parameter {where} is a functionResponse, which the role user has.", where)
            elif signature is not None and not any(name in part for name in _DATA):
                turn.say("", signature)
            else:
                self.only_native += [f"{where}.{name}" for name in _MEDIA if name in part]
        if (message := turn.message()) is None:
            return
        if self._told:
            self.messages[-1] = message
        else:
            self._say(message, path)
            self._told = True

    def _call(self, call: Any, path: str, id: str) -> dict[str, Any]:
        fields = named(call, path)
        name = text(fields.get("name", ""), f"{path}.name")
        if not name:
            raise missing(f"{path}.name", "the function that was called")
        args = fields.get("args", {})
        if type(args) is not dict:
            raise wrong(f"Parameter {path}.args must be an object.", f"{path}.args")
        given = text(fields.get("id", ""), f"{path}.id")
        self.only_native += [f"{path}.{field}" for field in fields if field in ("partialArgs", "willContinue")]
        function = {"name": self._names.there(name), "arguments": strict_json.dumps(args).decode()}
        return {"id": given or id, "type": "function", "function": function}


class _Turn:
    """One turn of the model: its text, calls and thoughts, and which part each signature was on."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._length = 0
        self._calls: list[dict[str, Any]] = []
        self._entries: list[dict[str, Any]] = []
        self._packed: list[dict[str, Any]] = []

    def think(self, words: str, signature: Any) -> None:
        """A thought."""
        if not self._unpacked(signature):
            self._entries.append(signatures.thought(words, len(self._entries), signature))

    def say(self, words: str, signature: Any) -> None:
        """A text."""
        start = self._length
        self._texts.append(words)
        self._length += len(words)
        self._sign(signature, span=[start, self._length])

    def call(self, call: dict[str, Any], signature: Any) -> None:
        """A call of a function."""
        self._calls.append(call)
        self._sign(signature, id=call["id"])

    def message(self) -> dict[str, Any] | None:
        """The turn as a message; None if nothing was said."""
        if not (self._length or self._calls):
            return None
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._texts) or None}
        if self._calls:
            message["tool_calls"] = self._calls
        # What was packed holds the thoughts that were shown beside it.
        if entries := self._packed or self._entries:
            message["reasoning_details"] = entries
        return message

    def _sign(self, signature: Any, **place: Any) -> None:
        if not self._unpacked(signature) and signatures.is_real(signature):
            self._entries.append(signatures.encrypted(signature, len(self._entries), **place))

    def _unpacked(self, signature: Any) -> bool:
        entries = signatures.unpack(signature) if type(signature) is str else None
        self._packed += entries or ()
        return entries is not None


def _plain(parts: list[dict[str, Any]]) -> Any:
    """The content of a message: one text as it is."""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts
