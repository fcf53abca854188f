"""What a provider of this protocol answers, as chat chunks or a chat completion that `openai_chat.AnswerReader` takes.

Counts, finish reasons and errors go on in forms that the chat's reader knows; it decides what to believe and what is
a failure. Signatures become entries of `reasoning_details`, see `signatures`.
"""

from collections.abc import Mapping
from typing import Any

from gateway.protocols.google_gemini import grounding, signatures
from gateway.protocols.google_gemini.finish import chat_block, chat_finish
from gateway.protocols.google_gemini.upstream_request import custom_tools, upstream_names
from gateway.protocols.google_gemini.usage import TIERS, chat_usage
from gateway.protocols.openai_chat.answer.reasoning import join
from gateway.wire import strict_json
from gateway.wire.errors import UpstreamFault
from routing.health.faults import Fault

_DONE_CALL = frozenset({"willContinue"})


class UpstreamAnswer:
    """Reads one answer, by events or whole.

    `chat` is the chat body that was asked for. `call_prefix` begins the id of a call that came without one; it differs
    from answer to answer, since a client keeps the calls of all of them.
    """

    def __init__(self, chat: Mapping[str, Any], *, call_prefix: str) -> None:
        self._names = upstream_names(chat)
        self._customs = custom_tools(chat)
        self._prefix = call_prefix
        self._grounds = chat.get("web_search_options") is not None
        self._candidates: dict[int, _Candidate] = {}
        self._usage: Any = None

    def event(self, name: str, data: Any) -> list[dict[str, Any]]:
        """The chat chunks of one event of a stream. Raises `UpstreamFault` for what is none; an error is a chunk.

        Each event has the counts so far. They go on with a finish reason, or with `rest`.
        """
        return [self._chunk(_opened(data))]

    def rest(self) -> list[dict[str, Any]]:
        """What was held back, when the stream has ended or is left: the counts of one that gave no finish reason."""
        usage, self._usage = self._usage, None
        return [{"object": "chat.completion.chunk", "choices": [], **self._counts(usage)}] if usage is not None else []

    def whole(self, data: Any) -> dict[str, Any]:
        """The chat completion of a body. Raises `UpstreamFault` for what is none; an error is handed on."""
        chunk = self._chunk(_opened(data))
        for held in self.rest():
            chunk |= held | {"choices": chunk["choices"]}
        for choice in chunk.get("choices", ()):
            message = {"role": "assistant", "content": None} | choice.pop("delta")
            for call in message.get("tool_calls", ()):
                del call["index"]
            if "reasoning_details" in message:
                message["reasoning_details"] = join(message["reasoning_details"])
            choice["message"] = message
        return chunk if "error" in chunk else chunk | {"object": "chat.completion"}

    def _chunk(self, data: dict[str, Any]) -> dict[str, Any]:
        if data.get("error"):
            return {"error": data["error"]}
        made: dict[str, Any] = {"object": "chat.completion.chunk"}
        for name, chat in (("responseId", "id"), ("modelVersion", "model")):
            if type(data.get(name)) is str:
                made[chat] = data[name]
        candidates = data.get("candidates") or []
        if type(candidates) is not list:
            raise _unreadable("candidates is not an array")
        made["choices"] = [self._choice(candidate, at) for at, candidate in enumerate(candidates)]
        if not candidates and (blocked := _blocked(data.get("promptFeedback"))) is not None:
            made["choices"] = [blocked]
        self._usage = data.get("usageMetadata") or self._usage
        if self._usage is not None and all(choice["finish_reason"] for choice in made["choices"]):
            made |= self._counts(self._usage)
            self._usage = None
        return made

    def _counts(self, usage: Any) -> dict[str, Any]:
        made = {"usage": chat_usage(usage, sum(candidate.searches for candidate in self._candidates.values()))}
        if type(usage) is dict and (tier := TIERS.get(str(usage.get("trafficType")))):
            made["service_tier"] = tier
        return made

    def _choice(self, sent: Any, at: int) -> dict[str, Any]:
        if type(sent) is not dict:
            raise _unreadable("a candidate is not an object")
        index = sent.get("index", at)
        if type(index) is not int:
            raise _unreadable("a candidate's index is not a number")
        state = self._candidates.get(index)
        if state is None:
            prefix = f"{self._prefix}{index}_" if index else self._prefix
            state = self._candidates[index] = _Candidate(self, prefix)
        content = sent.get("content") or {}
        parts = content.get("parts") or [] if type(content) is dict else None
        if type(parts) is not list:
            raise _unreadable("a candidate's parts are not an array")
        delta = state.take(parts, keeps=self._grounds)
        if "groundingMetadata" in sent or "citationMetadata" in sent:
            state.ground(sent)
        choice: dict[str, Any] = {
            "index": index,
            "delta": delta,
            "finish_reason": chat_finish(sent.get("finishReason")),
        }
        if choice["finish_reason"] and (notes := state.notes()):
            delta["annotations"] = notes
        if "logprobsResult" in sent and (logprobs := grounding.chat_logprobs(sent.get("logprobsResult"))) is not None:
            choice["logprobs"] = logprobs
        return choice

    def called(self, name: str, args: Any) -> dict[str, Any]:
        """The kind and inside of a tool call."""
        name = self._names.back(name)
        if name in self._customs:
            given = args.get("input") if type(args) is dict else None
            text = given if type(given) is str else strict_json.dumps(args).decode()
            return {"type": "custom", "custom": {"name": name, "input": text}}
        arguments = strict_json.dumps({} if args is None else args).decode()
        return {"type": "function", "function": {"name": name, "arguments": arguments}}


class _Candidate:
    """What has come of one candidate. `searches`: of the web, made for it."""

    __slots__ = (
        *("_answer", "_calls", "_entries", "_images", "_length", "_metadata", "_notes", "_prefix", "_text"),
        *("_thinks", "searches"),
    )

    def __init__(self, answer: UpstreamAnswer, prefix: str) -> None:
        self._answer = answer
        self._prefix = prefix
        self._calls = self._entries = self._images = self._length = self.searches = 0
        self._thinks = False  # The last entry is a thought that may go on.
        self._text: list[str] = []
        self._metadata: Any = None
        self._notes: list[dict[str, Any]] = []

    def take(self, parts: list[Any], keeps: bool) -> dict[str, Any]:
        """The delta of some parts; `keeps`: their text is needed at the end."""
        if len(parts) == 1 and not keeps and type(parts[0]) is dict and len(parts[0]) == 1:
            text = parts[0].get("text")
            if text and type(text) is str:  # Most events of most answers.
                self._length += len(text)
                self._thinks = False
                return {"content": text}
        delta: dict[str, Any] = {}
        for part in parts:
            if type(part) is not dict:
                raise _unreadable("a part is not an object")
            if part.get("thought") is True:
                self._think(part, delta)
                continue
            if type(call := part.get("functionCall")) is dict:
                self._call(call, part, delta)
            elif type(part.get("inlineData")) is dict:
                self._media(part, delta)
            elif type(part.get("text", "")) is str and ("text" in part or "thoughtSignature" in part):
                self._say(part, delta, keeps)
            elif part:
                delta.setdefault("content_parts", []).append(part)
            self._thinks = False
        return delta

    def ground(self, sent: Mapping[str, Any]) -> None:
        """What the answer rests on; it comes once or grows from event to event."""
        if metadata := sent.get("groundingMetadata"):
            self._metadata = metadata
            self.searches = max(self.searches, grounding.searches(metadata))
        self._notes += grounding.citations(sent.get("citationMetadata"))

    def notes(self) -> list[dict[str, Any]]:
        """Its annotations, at the end."""
        return grounding.annotations(self._metadata, "".join(self._text)) + self._notes

    def _think(self, part: Mapping[str, Any], delta: dict[str, Any]) -> None:
        text, signature = part.get("text") or "", part.get("thoughtSignature")
        if type(text) is not str:
            raise _unreadable("a thought is not a text")
        if not self._thinks:
            self._entries += 1
        self._thinks = not signature
        entry = signatures.thought(text, self._entries - 1, signature)
        if text:
            delta["reasoning"] = delta.get("reasoning", "") + text
        if text or signature:
            delta.setdefault("reasoning_details", []).append(entry)

    def _say(self, part: Mapping[str, Any], delta: dict[str, Any], keeps: bool) -> None:
        text = part.get("text", "")
        start = self._length
        self._length += len(text)
        if text:
            delta["content"] = delta.get("content", "") + text
            if keeps:
                self._text.append(text)
        self._sign(part, delta, span=[start, self._length])

    def _call(self, call: Mapping[str, Any], part: Mapping[str, Any], delta: dict[str, Any]) -> None:
        name = call.get("name")
        if type(name) is not str or not name:
            if call.keys() <= _DONE_CALL:
                return
            raise _unreadable("a function call has no name")
        id = call.get("id")
        if type(id) is not str or not id:
            id = f"{self._prefix}{self._calls}"
        made: dict[str, Any] = {"index": self._calls, "id": id, **self._answer.called(name, call.get("args"))}
        self._calls += 1
        if signatures.is_real(signature := part.get("thoughtSignature")):
            made |= signatures.on_call(signature)
        delta.setdefault("tool_calls", []).append(made)
        self._sign(part, delta, id=id)

    def _media(self, part: Mapping[str, Any], delta: dict[str, Any]) -> None:
        blob = part["inlineData"]
        kind, data = blob.get("mimeType"), blob.get("data")
        if type(kind) is not str or type(data) is not str or not kind.startswith("image/"):
            delta.setdefault("content_parts", []).append(dict(part))
            return
        picture = {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
        delta.setdefault("images", []).append(picture)
        self._images += 1
        self._sign(part, delta, image=self._images - 1)

    def _sign(self, part: Mapping[str, Any], delta: dict[str, Any], **place: Any) -> None:
        if signatures.is_real(signature := part.get("thoughtSignature")):
            entry = signatures.encrypted(signature, self._entries, **place)
            self._entries += 1
            delta.setdefault("reasoning_details", []).append(entry)


def _opened(data: Any) -> dict[str, Any]:
    """An answer's object. Errors of some servers come in a list of one."""
    if type(data) is list and len(data) == 1:
        data = data[0]
    if type(data) is not dict:
        raise _unreadable("it is not an object")
    return data


def _blocked(feedback: Any) -> dict[str, Any] | None:
    """The choice of a prompt that was not answered: a filter ended it before it began."""
    reason = chat_block(feedback.get("blockReason")) if type(feedback) is dict else None
    if reason is None:
        return None
    told = feedback.get("blockReasonMessage")
    return {"index": 0, "delta": {"refusal": told} if type(told) is str and told else {}, "finish_reason": reason}


def _unreadable(detail: str) -> UpstreamFault:
    return UpstreamFault(Fault.INVALID_RESPONSE, detail, unreadable=True)
