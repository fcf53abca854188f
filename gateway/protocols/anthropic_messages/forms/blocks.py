"""A whole message of the chat form as blocks of this protocol, and the parts that a stream shares with it."""

import re
from collections.abc import Mapping
from typing import Any

from gateway.protocols.anthropic_messages.forms import thoughts
from gateway.protocols.anthropic_messages.forms.arguments import to_input
from gateway.protocols.openai_chat.answer.content import transcript

_SIGNS = re.compile(r'\\.|["{}\[\]]', re.DOTALL)


class Call:
    """A tool call while its arguments come.

    - `id`, `name`: as the client is told them
    - `whole`: the arguments are an object that has ended. Without any they are not: some may come yet
    """

    __slots__ = ("_depth", "_escape", "_pieces", "_quoted", "id", "name", "whole")

    def __init__(self, call: dict[str, Any], names: Mapping[str, str]) -> None:
        """`call` is its first fragment."""
        inner = call.get("function") or call.get("custom") or {}
        self.id = call.get("id") or ""
        name: str = inner.get("name") or ""
        self.name = names.get(name, name)
        self.whole = self._quoted = False
        self._depth, self._escape = 0, ""  # brackets that are open; a backslash that the next piece goes on from
        self._pieces: list[str] = []

    def add(self, call: dict[str, Any]) -> str:
        """The arguments of a further fragment, or of the first."""
        inner = call.get("function") or call.get("custom") or {}
        piece: str = inner.get("arguments") or inner.get("input") or ""
        if piece:
            self._pieces.append(piece)
            self._scan(piece)
        return piece

    def _scan(self, piece: str) -> None:
        """Follows brackets and quotes, so that each character is looked at once however the pieces are cut."""
        piece = self._escape + piece
        for sign in _SIGNS.findall(piece):
            if sign[0] == "\\":
                continue
            if sign == '"':
                self._quoted = not self._quoted
            elif not self._quoted:
                self._depth += 1 if sign in "{[" else -1
                self.whole = self._depth == 0
        self._escape = "\\" if (len(piece) - len(piece.rstrip("\\"))) % 2 else ""

    @property
    def input(self) -> dict[str, Any]:
        """The arguments as an object."""
        return to_input("".join(self._pieces))


def blocks(message: dict[str, Any], names: Mapping[str, str]) -> list[dict[str, Any]]:
    """The blocks of a message: what was thought, said and called. `names` as of `client_answer.whole`."""
    details = [entry for entry in message.get("reasoning_details") or () if type(entry) is dict]
    if not details and (text := message.get("reasoning") or message.get("reasoning_content")):
        details = [{"type": "reasoning.text", "text": text}]
    made = [thoughts.to_block(entry) for entry in details]
    cited = [one for annotation in message.get("annotations") or () if (one := citation(annotation))]
    if (text := message.get("content")) or cited:
        block: dict[str, Any] = {"type": "text", "text": text or ""}
        made.append({**block, "citations": cited} if cited else block)
    if text := message.get("refusal"):
        made.append({"type": "text", "text": text})
    for image in message.get("images") or ():
        made.append({"type": "text", "text": picture(image)})
    if text := transcript(message):
        made.append({"type": "text", "text": text})
    for sent in message.get("tool_calls") or ():
        call = Call(sent, names)
        call.add(sent)
        made.append(call_block(call, call.input))
    return made


def call_block(call: Call, given: dict[str, Any]) -> dict[str, Any]:
    """The block of a call; `given` is its input, {} where that comes later."""
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": given}


def citation(annotation: Any) -> dict[str, Any] | None:
    """An annotation of the chat form as a citation; None for what is none."""
    if type(annotation) is not dict:
        return None
    page = annotation.get("url_citation")
    if type(page) is not dict:
        return annotation if type(annotation.get("cited_text")) is str else None
    return {
        "type": "web_search_result_location",
        "url": page.get("url") or "",
        "title": page.get("title") or "",
        "cited_text": page.get("content") or "",
        "encrypted_index": "",
    }


def picture(image: Any) -> str:
    """A picture, for which this protocol's answers have no block, as Markdown has it."""
    url = image.get("image_url") if type(image) is dict else None
    url = url.get("url") if type(url) is dict else url
    return f"![image]({url})" if type(url) is str else ""
