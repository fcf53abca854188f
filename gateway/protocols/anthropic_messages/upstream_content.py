"""Checked messages of the chat form as turns of this protocol.

- What instructs (system, developer) goes to the front, into `system`, in order: there is no other place for it that all
  providers of this protocol take, and Anthropic's own chat interface does the same
- Turns alternate: neighbours of one role become one, and the results of an assistant's calls stand together at the
  beginning of the next turn of the user's. A call that nobody answered gets a result that says so, and an answer to no
  call becomes text, since providers refuse either
- A text that is empty or blank is no block, and blanks at the end of the last assistant's turn do not go
- Thoughts stand before the rest of their turn, and only those that a provider of this protocol signed or encrypted
- Ids are made ones that providers take (`fitted`), and arguments that are no object are put into one (`to_input`)
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.protocols.anthropic_messages.forms.arguments import to_input
from gateway.protocols.anthropic_messages.forms.media import document_source, image_source, is_image
from gateway.protocols.anthropic_messages.forms.names import fitted
from gateway.protocols.anthropic_messages.forms.takes import Takes
from gateway.protocols.anthropic_messages.forms.thoughts import provider_block
from gateway.protocols.openai_chat.request.checks import shown, wrong
from gateway.protocols.openai_chat.request.foreign_clients import NO_RESULT
from gateway.protocols.openai_chat.request.foreign_forms import FAILED

MAX_TOOL_NAME = 128

Blocks = list[dict[str, Any]]


class Turns:
    """Takes the messages of a chat request in order.

    - `system`: blocks of instructions
    - `turns`: the messages of this protocol, after `end`
    """

    def __init__(self, takes: Takes) -> None:
        self.system: Blocks = []
        self.turns: list[dict[str, Any]] = []
        self._takes = takes
        # Calls of the last turn that wait for their results: ids as they are sent, by the client's.
        self._open: defaultdict[str, list[str]] = defaultdict(list)
        self._used: Counter[str] = Counter()  # the client's ids of all calls
        self._older: list[str] = []  # ids of calls in the older form, which have none

    def take(self, message: Mapping[str, Any], at: int) -> None:
        """One message. Raises `InvalidRequest` for what no provider of this protocol can be sent."""
        role, path = message["role"], f"messages[{at}]"
        if role in ("system", "developer"):
            self.system += self._said(message.get("content"), path)
        elif role == "assistant":
            self._assistant(message, path)
        elif role == "tool":
            self._result(message["tool_call_id"], message.get("content"), path)
        elif role == "function":
            self._result(self._older.pop(0) if self._older else "", message.get("content"), path)
        else:
            self._answer_calls()
            self._add("user", self._said(message.get("content"), path))

    def end(self) -> None:
        """There are no more. Raises `InvalidRequest` if nothing was said at all."""
        self._answer_calls()
        if not self.turns and self.system:
            self.turns.append({"role": "user", "content": [self.system.pop()]})
        if not self.turns:
            raise wrong("Parameter messages holds no text. Send some.", "messages")
        last = self.turns[-1]
        if last["role"] == "assistant" and last["content"][-1]["type"] == "text":
            last["content"][-1] = {**last["content"][-1], "text": last["content"][-1]["text"].rstrip()}

    def _add(self, role: str, blocks: Blocks) -> None:
        if not blocks:
            return
        if self.turns and self.turns[-1]["role"] == role:
            self.turns[-1]["content"] += blocks
        else:
            self.turns.append({"role": role, "content": blocks})

    def _assistant(self, message: Mapping[str, Any], path: str) -> None:
        self._answer_calls()
        if message.get("audio"):
            raise wrong(f"Parameter {path}.audio can not be sent to this model.", f"{path}.audio")
        if message.get("images"):
            param = f"{path}.images"
            raise wrong(f"Parameter {param} can not be sent to this model: it takes pictures of users alone.", param)
        details = message.get("reasoning_details") or ()
        thought = [block for entry in details if (block := provider_block(entry)) is not None]
        refused = [{"type": "text", "text": refusal}] if (refusal := message.get("refusal")) else []
        said = self._said(message.get("content"), path)
        calls = [self._call(call) for call in message.get("tool_calls") or ()]
        if not calls and (older := message.get("function_call")):
            self._older.append(path)
            calls = [self._call({"id": path, "type": "function", "function": older})]
        blocks = [*said, *refused, *calls]
        if blocks:  # thoughts alone are no turn
            self._add("assistant", [*thought, *blocks])

    def _call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """A call as a block. Ids are each used once: some servers give those of one turn to the next one's calls."""
        id, used = call["id"], self._used[call["id"]]
        self._used[id] += 1
        sent = fitted(f"{id}#{used}" if used else id)
        self._open[id].append(sent)
        if call["type"] == "custom":
            name, given = call["custom"]["name"], {"input": call["custom"]["input"]}
        else:
            name, given = call["function"]["name"], to_input(call["function"]["arguments"])
        made = {"type": "tool_use", "id": sent, "name": fitted(name, MAX_TOOL_NAME), "input": given}
        return {**made, "cache_control": cache} if (cache := call.get("cache_control")) else made

    def _result(self, id: str, content: Any, path: str) -> None:
        blocks = self._said(content, path)
        failed = bool(blocks) and type(content) is list and content[0].get("text") == FAILED
        waiting = self._open.get(id)
        if not waiting:
            self._add("user", [{"type": "text", "text": f"Result of the tool call {shown(id)}:"}, *blocks])
            return
        made: dict[str, Any] = {"type": "tool_result", "tool_use_id": waiting.pop(0)}
        if failed:
            made["is_error"] = True
            blocks = blocks[1:]
        if blocks and (cache := blocks[-1].get("cache_control")):
            made["cache_control"] = cache
            blocks[-1] = {name: value for name, value in blocks[-1].items() if name != "cache_control"}
        if blocks:
            plain = len(blocks) == 1 and blocks[0].keys() == {"type", "text"}
            made["content"] = blocks[0]["text"] if plain else blocks
        elif type(content) is list and content and (cache := content[-1].get("cache_control")):
            made["cache_control"] = cache
        self._add("user", [made])

    def _answer_calls(self) -> None:
        """The turn of the results is over."""
        missing = [
            {"type": "tool_result", "tool_use_id": id, "content": NO_RESULT, "is_error": True}
            for ids in self._open.values()
            for id in ids
        ]
        self._open.clear()
        self._add("user", missing)

    def _said(self, content: Any, path: str) -> Blocks:
        if type(content) is str:
            return [{"type": "text", "text": content}] if content.strip() else []
        made = []
        for at, part in enumerate(content or ()):
            block = self._block(part, f"{path}.content[{at}]")
            if block["type"] != "text" or block["text"].strip():
                made.append(block)
        return made

    def _block(self, part: Mapping[str, Any], path: str) -> dict[str, Any]:
        kind = part["type"]
        if kind == "text" or kind == "refusal":
            block: dict[str, Any] = {"type": "text", "text": part[kind]}
        elif kind == "image_url":
            block = self._sourced("image", image_source(part["image_url"]["url"], f"{path}.image_url.url"), path)
        elif kind == "file":
            block = self._file(part["file"], f"{path}.file")
        else:
            raise wrong(f"Parameter {path}.type can not be {kind}: this model can not be sent that.", f"{path}.type")
        if cache := part.get("cache_control"):
            block["cache_control"] = cache
        return block

    def _file(self, file: Mapping[str, Any], path: str) -> dict[str, Any]:
        data, name = file.get("file_data"), file.get("filename")
        if not data:
            raise wrong(f"Parameter {path}.file_id can not be sent to this model.", f"{path}.file_id")
        if is_image(data, name):
            return self._sourced("image", image_source(data, f"{path}.file_data"), path)
        block = self._sourced("document", document_source(data, name, f"{path}.file_data"), path)
        return {**block, "title": name} if name else block

    def _sourced(self, kind: str, source: dict[str, Any], path: str) -> dict[str, Any]:
        if source["type"] == "url" and not self._takes.urls:
            raise wrong(f"Parameter {path} can not be an address for this model: send it in base64.", path)
        return {"type": kind, "source": source}


def turns(messages: Sequence[Mapping[str, Any]], takes: Takes) -> tuple[Blocks, list[dict[str, Any]]]:
    """`system` and `messages` for a provider. Raises `InvalidRequest`."""
    made = Turns(takes)
    for at, message in enumerate(messages):
        made.take(message, at)
    made.end()
    return made.system, made.turns
