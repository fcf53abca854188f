"""One choice of an answer while its chunks pass: what is shown at once, and what is held back for the end."""

from typing import Any

from gateway.errors import Fault, UpstreamFault
from gateway.protocols.openai_chat_faults import fault_in_answer
from gateway.protocols.openai_chat_message import Draft, ToolCalls, deltas, text_bytes

MAX_CHOICES = 128

FINISHES = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})
# Words of other protocols that leak through compatible servers. What is in neither is shown as `stop`.
_FINISH_WORDS = {
    "max_tokens": "length",
    "model_length": "length",
    "tool_use": "tool_calls",
    "safety": "content_filter",
    "refusal": "content_filter",
}
PLAIN = frozenset({"index", "delta", "message", "finish_reason", "logprobs"})
_NULLABLE = frozenset({"content", "refusal", "tool_calls", "function_call", "audio"})


class Choice:
    """Takes the pieces of one choice in order.

    - `finish`, `native`: why it ended, in OpenAI's words and in the upstream's; None while it has not
    - `meaningful`: something to show has been read; `bytes`: UTF-8 bytes of text read
    - `draft`: the message so far, for a client that wants it whole
    - `envelope`, `rest`: fields beside and inside the choice that came with the finish reason and go out with it
    """

    __slots__ = ("bytes", "calls", "draft", "envelope", "finish", "index", "meaningful", "native", "rest")

    def __init__(self, index: int) -> None:
        self.index = index
        self.finish: str | None = None
        self.native: str | None = None
        self.meaningful = False
        self.bytes = 0
        self.calls: ToolCalls | None = None
        self.draft: Draft | None = None
        self.envelope: dict[str, Any] = {}
        self.rest: dict[str, Any] = {}

    def take(self, choice: dict[str, Any], envelope: dict[str, Any], first: bool) -> dict[str, Any] | None:
        """The choice of a chunk without repeated role, nulls and finish reason; None if nothing is left to send.

        `choice` is changed. Raises `UpstreamFault` if it is not one.
        """
        delta = self._delta(choice.get("delta"), first)
        content = delta.get("content")
        bare = not content and all(v is None or v == "" or v == [] for k, v in delta.items() if k != "role")
        if not bare:
            self.meaningful = True
            self.bytes += text_bytes(delta)
        native = choice.get("finish_reason")
        choice["index"] = self.index
        choice["delta"] = delta
        choice["finish_reason"] = None
        if not native:
            # Nothing but a role or nulls that were dropped: no client needs to see that.
            hollow = not delta and choice.keys() <= PLAIN and not choice.get("logprobs")
            return None if hollow else choice
        rest = {name: value for name, value in choice.items() if name != "delta"}
        if not bare and rest.get("logprobs"):
            rest["logprobs"] = None  # They belong to the text, which goes ahead.
        self.end(native, envelope, rest)
        if bare and not first:
            return None
        shown: dict[str, Any] = {"index": self.index, "delta": delta, "finish_reason": None}
        if bare:
            shown["delta"] = {"role": "assistant", "content": ""}
        elif "logprobs" in choice:
            shown["logprobs"] = choice["logprobs"]
        return shown

    def take_whole(self, choice: dict[str, Any], envelope: dict[str, Any]) -> list[dict[str, Any]]:
        """The choice of a whole answer, normalised in place, and the same as the choices of chunks."""
        message = choice.get("message")
        if type(message) is not dict:
            raise UpstreamFault(Fault.INVALID_RESPONSE, "a choice has no message")
        message["role"] = "assistant"
        message.setdefault("content", None)
        self.meaningful = True
        self.bytes += text_bytes(message)
        native = choice.get("finish_reason") or ("tool_calls" if message.get("tool_calls") else "stop")
        rest = {k: v for k, v in choice.items() if k not in ("message", "logprobs")}
        self.end(native, envelope, rest)
        choice["index"] = self.index
        choice["finish_reason"] = self.finish
        parts: list[dict[str, Any]] = [
            {"index": self.index, "delta": delta, "finish_reason": None} for delta in deltas(message)
        ]
        if choice.get("logprobs"):
            parts[-1]["logprobs"] = choice["logprobs"]
        return parts

    def end(self, native: Any, envelope: dict[str, Any], rest: dict[str, Any]) -> None:
        """Take a finish reason. The last one stands, but a mere `stop` does not undo one that says more."""
        if type(native) is not str:
            raise UpstreamFault(Fault.INVALID_RESPONSE, "a finish reason is not a string")
        if native == "error":
            raise fault_in_answer(rest.get("error") or {}, b"finish_reason error")
        finish = native if native in FINISHES else _FINISH_WORDS.get(native.lower(), "stop")
        if self.finish is None or finish != "stop":
            self.finish, self.native = finish, native
        self.meaningful = True
        self.envelope = self.envelope | {k: v for k, v in envelope.items() if k != "choices"}
        self.rest = self.rest | rest

    def end_unsaid(self) -> None:
        """The upstream said that it is done, and not why."""
        if self.finish is None:
            self.finish = "tool_calls" if self.calls else "stop"

    def draw(self, shown: dict[str, Any]) -> None:
        """Add what `take` gave to the whole message."""
        self.draft = self.draft or Draft()
        self.draft.add(shown["delta"], shown.get("logprobs"))
        if not shown.keys() <= PLAIN:
            self.rest = self.rest | {k: v for k, v in shown.items() if k not in PLAIN and v is not None}

    def whole(self) -> dict[str, Any]:
        """The choice of a whole answer, drawn from chunks."""
        draft = self.draft or Draft()
        draft.add({}, self.rest.pop("logprobs", None))
        made = {"index": self.index, "message": draft.message(), "finish_reason": self.finish}
        made["logprobs"] = draft.logprobs()
        return made | {k: v for k, v in self.rest.items() if k not in PLAIN}

    def closing(self) -> dict[str, Any]:
        """The choice of its last chunk: no text, the finish reason and what came with it."""
        return {"index": self.index, "delta": {}} | self.rest | {"finish_reason": self.finish}

    def _delta(self, sent: Any, first: bool) -> dict[str, Any]:
        delta: dict[str, Any] = {} if sent is None else sent
        if type(delta) is not dict:
            raise UpstreamFault(Fault.INVALID_RESPONSE, "a delta is not an object")
        if first:
            opened: dict[str, Any] = {"role": "assistant"}
            delta = opened | delta | opened
        elif len(delta) == 1 and delta.get("content") is not None:
            return delta  # Most chunks of most answers.
        else:
            delta = {k: v for k, v in delta.items() if k != "role" and (v is not None or k not in _NULLABLE)}
        if "function_call" in delta:
            call = delta["function_call"]
            if not call or (type(call) is dict and not any(call.values())):
                del delta["function_call"]  # An empty stub of the old way beside the new one.
        if "tool_calls" in delta:
            delta["tool_calls"] = self._tool_calls(delta["tool_calls"])
            if not delta["tool_calls"]:
                del delta["tool_calls"]
        return delta

    def _tool_calls(self, sent: Any) -> list[dict[str, Any]]:
        if not sent:
            return []
        if type(sent) is not list or not all(type(call) is dict for call in sent):
            raise UpstreamFault(Fault.INVALID_RESPONSE, "tool_calls is not an array of objects")
        if self.calls is None:
            self.calls = ToolCalls()
        kept = (self.calls.normalise(call) for call in sent)
        return [call for call in kept if call]
