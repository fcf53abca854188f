"""One choice of an answer while its chunks pass: what is shown at once, and what is held back for the end."""

from typing import Any

import msgspec

from gateway.protocols.openai_chat.answer import content
from gateway.protocols.openai_chat.answer import finish_words as finish
from gateway.protocols.openai_chat.answer.held import A_PIECE, Held
from gateway.protocols.openai_chat.answer.message import Draft, deltas, reasoning_bytes, text_bytes
from gateway.protocols.openai_chat.answer.reasoning import ALIASES, NAMES, Reasoning
from gateway.protocols.openai_chat.answer.repeated import Repeated
from gateway.protocols.openai_chat.answer.tool_calls import ToolCalls, names_of, string_of, whole_calls
from gateway.protocols.openai_chat.faults import fault_in_answer
from gateway.protocols.stops import Stopper
from gateway.wire.errors import UpstreamFault
from routing.health.faults import Fault

MATCHED = "stop_reason"  # beside the finish reason: the sequence that ended the text, as vLLM has it
PLAIN = frozenset({"index", "delta", "message", "finish_reason", "logprobs"})
_REASONING = NAMES | ALIASES
_NULLABLE = _REASONING | {"content", "refusal", "tool_calls", "function_call", "audio", "annotations"}
_encode = msgspec.json.Encoder().encode
_NO_TEXT = (list, dict)
_THOUGHTS = frozenset({"reasoning", "reasoning_content"})


class Manner(msgspec.Struct, frozen=True):
    """How one client wants its choices written.

    - `logprobs`: it asked for log probabilities; `null_logprobs`: a chunk without them says so
    - `reasoning`: it wants to see what the model thought
    - `functions`: it uses `functions`, as one did before tools; `tools`: those that it declared
    - `stops`: sequences that end the text and that the upstream was not told
    - `call_prefix`: begins the id of a tool call that came without one
    - `keeps_text`: what is said is to be known later
    - `after`: what has been said before; the choice goes on from there
    """

    logprobs: bool = False
    null_logprobs: bool = False
    reasoning: bool = True
    functions: bool = False
    tools: Any = None
    stops: tuple[str, ...] = ()
    call_prefix: str = "call_"
    keeps_text: bool = False
    after: str = ""


class Choice:
    """Takes the pieces of one choice in order.

    - `finish`, `native`: why it ended, in OpenAI's words and in the upstream's; None while it has not. Until
      `conclude` it is what the upstream says, not what came
    - `stopped`: one of the client's stop sequences came; what follows is only counted
    - `over`: the upstream has said why it ended
    - `meaningful`: something to show has been read
    - `bytes`: UTF-8 bytes of text read, `reasoning_bytes` of them reasoning, shown or not, waiting or not
    - `calls`: how many calls of tools have begun
    - `envelope`: fields beside the choice that came with the finish reason and go out with it
    """

    __slots__ = (
        *("bytes", "calls", "envelope", "finish", "index", "meaningful", "native", "over"),
        *("reasoning_bytes", "stopped"),
        *("_annotations", "_called", "_calls", "_draft", "_filled", "_function", "_held", "_kept"),
        *("_manner", "_matched", "_mirrored", "_opened", "_plain", "_reasoning", "_repeated", "_rest", "_said"),
        *("_stopper", "_understood"),
    )

    def __init__(self, index: int, manner: Manner, held: Held) -> None:
        self.index = index
        self.finish: str | None = None
        self.native: str | None = None
        self.stopped = self.meaningful = self.over = False
        self.reasoning_bytes = self.bytes = self.calls = 0
        self.envelope: dict[str, Any] = {}
        self._manner = manner
        self._held = held
        self._understood = True  # Its finish reason is a word that somebody knows.
        self._function = ""  # The name in `function_call`, once it has gone out.
        self._opened = bool(manner.after)  # The chunk with the role has gone out.
        self._repeated = Repeated(manner.after) if manner.after else None
        self._kept: list[str] | None = [] if manner.keeps_text else None
        self._stopper = Stopper(manner.stops) if manner.stops else None
        self._matched: str | None = None
        self._plain = False  # The role has gone out, and text goes out as it came.
        self._reasoning: Reasoning | None = None
        self._calls: ToolCalls | None = None
        self._mirrored: int | None = None  # The tool call that a client of `functions` sees as its function call.
        self._said = False  # There was something but reasoning and calls.
        self._filled = False  # There was anything at all, be it without a byte of text.
        self._called: str | None = None  # The finish reason that fits the calls there were.
        self._annotations: list[Any] = []
        self._draft: Draft | None = None
        self._rest: dict[str, Any] = {}  # Fields of the choice that came with the finish reason.

    def take(self, choice: dict[str, Any], envelope: dict[str, Any]) -> dict[str, Any] | None:
        """The choice of a chunk without repeated role, nulls and finish reason; None if nothing is left to send.

        `choice` is changed. Raises `UpstreamFault` if it is not one.
        """
        was_stopped = self.stopped  # A name of its own: `_delta` may change it.
        if was_stopped:
            self._count(choice)
            return None
        sent, native = choice.get("delta"), choice.get("finish_reason")
        choice["index"], choice["finish_reason"] = self.index, None
        if self._manner.null_logprobs or "logprobs" in choice:
            self._mask(choice)
        if self._repeated is not None and type(sent) is dict:
            self._drop_repeated(self._repeated, sent)
        if self._plain and type(sent) is dict and len(sent) == 1 and not native:
            content = sent.get("content")
            if content and type(content) is str:  # Most chunks of most answers.
                self.bytes += len(content) if content.isascii() else len(content.encode())
                self._said = self.meaningful = True
                if self._kept is not None:
                    self._kept.append(content)
                return choice
        opens, delta = not self._opened, self._delta(sent)
        choice["delta"] = delta
        if self._kept is not None:
            self._keep(delta)
        if self.stopped and "logprobs" in choice:
            choice["logprobs"] = None  # They would tell the sequence.
        bare = all(v is None or v == "" or v == [] for k, v in delta.items() if k != "role")
        self.meaningful = self.meaningful or not bare
        self._filled = self._filled or not bare
        if not native:
            # Nothing but a role or nulls that were dropped: no client needs to see that.
            hollow = not delta and choice.keys() <= PLAIN and not choice.get("logprobs")
            return None if hollow else choice
        rest = {name: value for name, value in choice.items() if name != "delta"}
        if not bare and rest.get("logprobs"):
            rest["logprobs"] = None  # They belong to the text, which goes ahead.
        self._end(native, rest)
        beside = {k: v for k, v in envelope.items() if k != "choices"}
        self._held.add((beside, rest))
        self.envelope |= beside
        self._rest |= rest
        if bare and not opens:
            return None
        shown: dict[str, Any] = {"index": self.index, "delta": delta, "finish_reason": None}
        if bare:
            shown["delta"] = {"role": "assistant", "content": ""}
        elif "logprobs" in choice:
            shown["logprobs"] = choice["logprobs"]
        return shown

    def _count(self, choice: dict[str, Any]) -> None:
        """Counts what came after the text had ended: it is paid for all the same."""
        delta, native = choice.get("delta"), choice.get("finish_reason")
        if type(delta) is dict:
            self._filled = self._filled or any(value for name, value in delta.items() if name != "role")
            self._straighten(delta)
            thought = reasoning_bytes(delta)
            self.reasoning_bytes += thought
            self.bytes += thought + text_bytes(delta)
        self.over = self.over or bool(native)

    def abandon(self) -> None:
        """Nobody wants it any more: what was kept of it is let go, and what follows is only counted."""
        self.stopped, self._held = True, Held()
        self._draft = self._calls = self._repeated = None
        self._kept = None if self._kept is None else []
        self._annotations, self._rest, self.envelope = [], {}, {}

    @property
    def empty(self) -> bool:
        """Nothing was written in it: no text, thought, call, picture or sound."""
        return not (self._filled or self.bytes or self._called or self._annotations)

    @property
    def text(self) -> str:
        """What was said, if it was kept and is plain text alone; else empty."""
        return "".join(self._kept or ())

    def take_whole(self, choice: dict[str, Any]) -> None:
        """The choice of a whole answer, normalised in place.

        Its finish reason is put right by `finish_whole`, after `conclude`.
        """
        sent = choice.get("message")
        if type(sent) is not dict:
            raise UpstreamFault(Fault.INVALID_RESPONSE, "a choice has no message")
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None, "annotations": []}
        message |= sent
        message["role"] = "assistant"
        if (repeated := self._repeated) is not None:
            self._drop_repeated(repeated, message)
            message["content"] = (message.get("content") or "") + repeated.end()
            self._repeated = None
        choice["message"] = message
        self._annotations = message["annotations"] = _list(message["annotations"])
        self._filled = any(value for name, value in message.items() if name != "role")
        self._straighten(message)
        message.setdefault("content", None)
        if "tool_calls" in message or "function_call" in message:
            calls = whole_calls(message.pop("tool_calls", None), self._manner.call_prefix)
            self._note_calls(message, calls, calls[:1])
        self._weigh(message)
        choice["index"] = self.index
        self._mask(choice)
        if self._stopper:
            self._cut(self._stopper, choice, message)
        if not message["content"] and "tool_calls" in message:
            message["content"] = None
        if native := choice.get("finish_reason"):
            self._end(native, choice)

    def in_chunks(self, choice: dict[str, Any], envelope: dict[str, Any]) -> list[dict[str, Any]]:
        """What `take_whole` made of a choice, as the choices of chunks."""
        self.envelope = envelope
        self._rest = {k: v for k, v in choice.items() if k not in ("message", "logprobs")}
        parts: list[dict[str, Any]] = [
            {"index": self.index, "delta": delta, "finish_reason": None} for delta in deltas(choice["message"])
        ]
        for part in parts if self._manner.null_logprobs else ():
            part["logprobs"] = None
        if choice["logprobs"]:
            parts[-1]["logprobs"] = choice["logprobs"]
        return parts

    def tail(self) -> dict[str, Any] | None:
        """The choice of a chunk with what was held back and now has to go, if anything was."""
        delta: dict[str, Any] = {}
        if self.stopped:
            return None
        if self._repeated is not None and (text := self._repeated.end()):
            delta["content"] = text
        if self._stopper and (text := self._stopper.end()):
            delta["content"] = text
        if self._calls and (calls := self._calls.left()):
            self._note_calls(delta, calls, calls[:1] if self._mirrored is None else [])
        if not delta:
            return None
        shown = {"index": self.index, "delta": delta, "finish_reason": None}
        return shown | ({"logprobs": None} if self._manner.null_logprobs else {})

    def conclude(self, at_cap: bool) -> None:
        """All is read: settle why it ended, from what the upstream said and from what came.

        `at_cap`: as many tokens came as were allowed. Raises `UpstreamFault` for calls that were announced and
        are all there should have been, but never came: a client in a loop would take the silence for the end.
        """
        said = None if self.stopped else self.finish
        if not (self._understood or self._said or self._called or self.reasoning_bytes):
            raise UpstreamFault(Fault.INVALID_RESPONSE, f"it said nothing and ended with {self.native!r}")
        if said in ("tool_calls", "function_call") and not self._called and not self._said:
            raise UpstreamFault(Fault.INVALID_RESPONSE, "it ended for tool calls and sent none")
        if said in (None, "stop", "tool_calls", "function_call"):
            cut = at_cap and said in (None, "stop")
            self.finish = "stop" if self.stopped else "length" if cut else self._called or "stop"
        self.meaningful = True

    def draw(self, shown: dict[str, Any]) -> None:
        """Add what `take` gave to the whole message."""
        self._draft = self._draft or Draft()
        delta, logprobs = shown["delta"], shown.get("logprobs")
        for value in delta.values():
            if type(value) is str:
                self._held.add_bytes(len(value) + A_PIECE)
            else:
                self._held.add(value)
        if logprobs:
            self._held.add_bytes(len(_encode(logprobs)))
        self._draft.add(delta, logprobs)
        if not shown.keys() <= PLAIN:
            rest = {k: v for k, v in shown.items() if k not in PLAIN and v is not None}
            self._held.add(rest)
            self._rest |= rest

    def whole(self) -> dict[str, Any]:
        """The choice of a whole answer, drawn from chunks."""
        draft = self._draft or Draft()
        draft.add({"annotations": self._annotations}, self._rest.pop("logprobs", None))
        made = {"index": self.index, "message": draft.message(), "logprobs": draft.logprobs()}
        return made | self._ending() | {k: v for k, v in self._rest.items() if k not in PLAIN}

    def finish_whole(self, choice: dict[str, Any]) -> None:
        """Put the finish reason of `take_whole`'s choice right."""
        told = choice.get("native_finish_reason")
        choice |= self._ending()
        if told:
            choice["native_finish_reason"] = told

    def closing(self) -> dict[str, Any]:
        """The choice of its last chunk: no text, the finish reason and what came with it."""
        delta = {"annotations": self._annotations} if self._annotations else {}
        made = {"index": self.index, "delta": delta} | ({"logprobs": None} if self._manner.null_logprobs else {})
        ending = self._ending()
        return made | ending | self._rest | {"finish_reason": ending["finish_reason"]}

    def _ending(self) -> dict[str, Any]:
        """The upstream's own word is shown where it says another thing; usually the two are one. A stop sequence that
        was found here is named as servers name one that they found.
        """
        made: dict[str, Any] = {"finish_reason": self.finish}
        if self.native is not None and self.native != self.finish:
            made["native_finish_reason"] = self.native
        return made if self._matched is None else made | {MATCHED: self._matched}

    def _end(self, native: Any, choice: dict[str, Any]) -> None:
        """Take a finish reason. The last one stands, but a mere `stop` does not undo one that says more."""
        if type(native) is not str:
            raise UpstreamFault(Fault.INVALID_RESPONSE, "a finish reason is not a string")
        meant = finish.meaning(native)
        if type(meant) is Fault:
            if error := choice.get("error"):
                raise fault_in_answer(error, f"finish_reason {native[:40]}".encode())
            raise UpstreamFault(meant, f"in a 200: finish_reason {native[:40]!r}")
        self.over = True
        if self.finish is None or (meant or "stop") != "stop":
            self.finish, self.native, self._understood = meant or "stop", finish.native(native), meant is not None
        # Before the calls that it announces it says nothing yet, nor does a word that nobody knows.
        self.meaningful = self.meaningful or meant not in ("tool_calls", "function_call", None)

    def _mask(self, choice: dict[str, Any]) -> None:
        """Log probabilities are for those who asked; where there are none, null."""
        if self._manner.logprobs:
            choice.setdefault("logprobs", None)
        else:
            choice["logprobs"] = None

    def _delta(self, sent: Any) -> dict[str, Any]:
        delta: dict[str, Any] = {} if sent is None else sent
        if type(delta) is not dict:
            raise UpstreamFault(Fault.INVALID_RESPONSE, "a delta is not an object")
        if self._opened:
            delta = {k: v for k, v in delta.items() if k != "role" and (v is not None or k not in _NULLABLE)}
        else:
            role: dict[str, Any] = {"role": "assistant"}
            delta, self._opened = role | delta | role, True
        self._plain = self._stopper is None
        self._straighten(delta)
        if "tool_calls" in delta or "function_call" in delta:
            if self._calls is None:
                self._calls = ToolCalls(self._manner.call_prefix, names_of(self._manner.tools), self._held)
            waited = self._calls.waiting
            calls = self._calls.take(delta.pop("tool_calls", None))
            self.bytes += self._calls.waiting - waited
            if calls and self._mirrored is None:
                self._mirrored = calls[0]["index"]
            self._note_calls(delta, calls, [call for call in calls if call["index"] == self._mirrored])
        if "annotations" in delta:
            # All go with the finish reason: OpenAI's SDK fails on a second list of them.
            annotations = _list(delta.pop("annotations"))
            self._held.add(annotations)
            self._annotations += annotations
        self._weigh(delta)
        if self._stopper:
            self._hold(self._stopper, delta)
        return delta

    def _straighten(self, part: dict[str, Any]) -> None:
        """Text is text, whatever parts it comes in, and reasoning has all its names."""
        if type(part.get("content")) in _NO_TEXT:
            content.spread(part)
        if type(part.get("refusal")) in _NO_TEXT:
            part["refusal"] = content.text_of(part["refusal"])
        if not _REASONING.isdisjoint(part):
            for name in _THOUGHTS & part.keys():
                if type(part[name]) in _NO_TEXT:
                    part[name] = content.text_of(part[name])
            self._reasoning = self._reasoning or Reasoning()
            self._reasoning.spread(part)

    def _keep(self, delta: dict[str, Any]) -> None:
        assert self._kept is not None
        text = delta.get("content")
        if any(value for name, value in delta.items() if name not in ("role", "content")):
            self._kept = None
        elif text and type(text) is str:
            self._kept.append(text)

    def _drop_repeated(self, repeated: Repeated, part: dict[str, Any]) -> None:
        """Takes out of a delta or message what was said before it."""
        if type(part.get("content")) in _NO_TEXT:
            content.spread(part)
        if type(part.get("content")) is not str:
            return
        if text := repeated.feed(part["content"]):
            part["content"] = text
        else:
            del part["content"]
        if not repeated.open:
            self._repeated = None

    def _note_calls(self, part: dict[str, Any], calls: list[dict[str, Any]], first: list[dict[str, Any]]) -> None:
        """Put tool calls into a delta or message; `first`: the pieces of the first one among them."""
        if "function_call" in part:
            self._note_function(part, part.pop("function_call"))
        if calls:
            part["tool_calls"] = calls
            self.calls += sum("id" in call for call in calls)  # which each says once
            if not (self._manner.functions and self._called):
                self._called = "tool_calls"
        pieces = [call["function"] for call in first if "function" in call]
        if pieces and self._manner.functions and "function_call" not in part:
            arguments = "".join(piece.get("arguments", "") for piece in pieces)
            name = {"name": pieces[0]["name"]} if "name" in pieces[0] else {}
            part["function_call"], self._called = name | {"arguments": arguments}, "function_call"

    def _note_function(self, part: dict[str, Any], call: Any) -> None:
        """The old way. Its name goes out once; an empty stub beside the new way is nothing."""
        if type(call) is not dict:
            return
        call = {name: value for name, value in call.items() if value is not None and value != ""}
        if call.get("name") == self._function:
            call.pop("name", None)
        if not call:
            return
        self._function = self._function or str(call.get("name", ""))
        call["arguments"] = string_of(call.get("arguments"))
        self._called = self._called or "function_call"
        part["function_call"] = call

    def _hold(self, stopper: Stopper, delta: dict[str, Any]) -> None:
        """Take out of a delta's text a stop sequence with all that follows, and what may yet become one."""
        text = delta.get("content")
        if text and type(text) is str:
            delta["content"] = stopper.feed(text)
        if stopper.matched:
            self.stopped, self.finish, self._matched = True, "stop", stopper.matched
            delta.pop("tool_calls", None)
            delta.pop("function_call", None)
        elif "tool_calls" in delta or "function_call" in delta:  # The text is over.
            delta["content"] = (delta.get("content") or "") + stopper.end()
        if text and not delta.get("content"):
            del delta["content"]

    def _cut(self, stopper: Stopper, choice: dict[str, Any], message: dict[str, Any]) -> None:
        """The same in a whole message."""
        self._stopper = None
        text = message["content"]
        if not text or type(text) is not str:
            return
        kept = stopper.feed(text)
        if stopper.matched:
            self.stopped, self._matched = True, stopper.matched
            message["content"] = kept
            message.pop("tool_calls", None)
            message.pop("function_call", None)
            if type(choice["logprobs"]) is dict:
                choice["logprobs"] = _cut_logprobs(choice["logprobs"], len(kept))

    def _weigh(self, part: dict[str, Any]) -> None:
        """Count what came, and take away what the client does not want to see."""
        if "reasoning" in part:
            thought = reasoning_bytes(part)
            self.reasoning_bytes += thought
            self.bytes += thought
        self.bytes += text_bytes(part)
        if not self._said:
            self._said = bool(part.get("content") or part.get("refusal") or part.get("audio"))
        if not self._manner.reasoning:
            for name in NAMES & part.keys():
                del part[name]


def _list(sent: Any) -> list[Any]:
    return sent if type(sent) is list else []


def _cut_logprobs(logprobs: dict[str, Any], length: int) -> dict[str, Any]:
    """Those of the tokens that end within the first `length` characters."""
    tokens = logprobs.get("content")
    kept, at = [], 0
    for token in tokens if type(tokens) is list else ():
        at += len(str(token.get("token", ""))) if type(token) is dict else 0
        if at > length:
            break
        kept.append(token)
    return logprobs | {"content": kept}
