"""The answer of an embeddings upstream, read from the bytes of a 2xx body, in the encoding the client asked for.

There is one vector for each input, in the inputs' order and all of one length, whatever order and encoding the upstream
gave. The body is held back for `final`, so that the relay can settle first. Vectors in the client's encoding pass byte
for byte. It is read in steps that are each short, however long it is: a thread that takes them leaves the others turns.
"""

from decimal import Decimal
from typing import Any

import msgspec

from billing.tokens import LARGEST, Tokens
from gateway.protocols.openai_chat import faults
from gateway.protocols.openai_chat.usage.claim import claimed
from gateway.protocols.openai_embeddings.request import READS, Embeddings
from gateway.protocols.openai_embeddings.vectors import NoVector, read
from gateway.protocols.sides import Sent, Vectors
from gateway.wire import json_slices
from gateway.wire.dialects import STANDARD, Dialect
from gateway.wire.errors import GatewayError, UpstreamFault
from gateway.wire.sse import MAX_EVENT
from gateway.wire.strict_json import number
from routing.health.faults import Fault

TOO_LONG = "answer_too_long"
MAX_ID = 200  # characters kept of an upstream's id
MOST_BESIDE = 1 << 20  # bytes of a value that is no vector
_PRIVATE = frozenset({"cost", "cost_details"})  # what the provider bills the operator
_COUNTS = ("prompt_tokens", "input_tokens", "promptTokenCount", "total_tokens", "totalTokenCount")

_name = msgspec.json.Decoder(str).decode
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_NULL = b"null"


class VectorReader:
    """Reads one answer. `feed` its bytes, call `end` when they end, settle, then send `final`.

    - `model`: as the client is shown it
    - `most_bytes`: of the body, as it came and as it goes
    - `wants_cost`: usage is shown with what is charged

    What it knows is what `gateway.protocols.sides.Answer` says. Nothing is written, and so nothing is ever cut short.
    """

    finish_reason: str | None = None
    native_finish_reason: str | None = None
    relayed_bytes = reasoning_bytes = calls = unread_body = skipped = 0
    said = tier = ""
    stopped = passes = counted_as_nothing = False
    empty = True  # of what a completion counts

    def __init__(
        self,
        asked: Embeddings,
        *,
        model: str,
        dialect: Dialect = STANDARD,
        most_bytes: int = MAX_EVENT,
        wants_cost: bool = False,
    ) -> None:
        self.meaningful = self.complete = False
        self.upstream_id = ""
        self.fault: UpstreamFault | None = None
        self.abandoned: GatewayError | None = None
        self.usage: Tokens | None = None
        self.usage_suspect = False
        self.usage_claim: dict[str, Any] | None = None
        self._asked = asked
        self._model = model
        self._dialect = dialect
        self._most_bytes = most_bytes
        self._wants_cost = wants_cost
        self._names = Vectors()
        self._body = bytearray()
        self._fields: dict[str, Any] = {}  # of the answer, but for vectors and usage
        self._vectors: list[bytes] = []
        self._sent: dict[str, Any] = {}  # the upstream's usage
        self._shown: Tokens | None = None
        self._cost: Decimal | None = None

    @property
    def begun(self) -> bool:
        """Whether an answer is under way."""
        return bool(self._body) or self.complete

    @property
    def counted(self) -> bool:
        """Whether the upstream has counted it."""
        return self.complete and self.usage is not None

    @property
    def unread(self) -> int:
        """Bytes that wait for the rest of their body."""
        return len(self._body)

    @property
    def kept(self) -> int:
        """Bytes that it keeps until its end."""
        return len(self._body)

    def disbelieve(self) -> None:
        """Its counts cannot be: `usage` is none from now on."""
        if self.usage is not None:
            self.usage_claim = claimed(self._sent, {"prompt": self.usage.prompt})
            self.usage, self.usage_suspect = None, True

    def understand(self, sent: Sent) -> None:
        """What comes is the answer to this. To be called before `feed`."""
        self._names = sent.vectors

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes as they came. Raises `UpstreamFault`."""
        self._body += data
        if len(self._body) > self._most_bytes:
            raise self._too_large()
        return []

    def end(self) -> None:
        """The body ended. Raises `UpstreamFault` if it is no answer to what was asked."""
        body = bytes(self._body)
        self._body.clear()
        try:
            self._fields = {_name(name): value for name, value in json_slices.fields(body)}
            if failure := self._take("error"):
                raise faults.fault_in_answer(failure, body)
            self._read_usage(self._take("usage"), self._take("usageMetadata"))
            data = self._fields.pop(self._names.answer, b"")
            self._fields = {name: _value(value) for name, value in self._fields.items()}
            self._read_vectors(data)
        except NoVector as error:
            raise _invalid(f"a vector is none: {error}") from None
        except (ValueError, RecursionError) as error:
            raise _invalid(f"the body is not the JSON of an answer: {error}") from None
        if type(id := self._fields.get("id")) is str:
            self.upstream_id = id.replace("\0", "")[:MAX_ID]
        self.meaningful = self.complete = True

    def conclude(self) -> None:
        """It is never stopped."""

    def abandon(self, reason: GatewayError) -> bool:
        """Of a body nothing can be let go and still be read."""
        return False

    def set_usage(self, tokens: Tokens) -> None:
        """Show these counts, which are what is billed."""
        self._shown = tokens

    def set_cost(self, dollars: Decimal | None) -> None:
        """What the answer is charged, for a client that asked to see it."""
        self._cost = dollars

    def final(self) -> bytes:
        """After settlement, once: the whole body."""
        tokens = self._shown or self.usage or Tokens()
        usage = {name: value for name, value in self._sent.items() if name not in _PRIVATE}
        usage |= {"prompt_tokens": tokens.prompt, "total_tokens": tokens.prompt}
        if self._wants_cost and self._cost is not None:
            usage["cost"] = number(self._cost)
        head = _encode(self._fields | {"object": "list", "model": self._model, "usage": usage})
        return b"".join((head[:-1], b',"data":[', *self._vectors, b"]}"))  # once: it is long

    def error_event(self, error: GatewayError, request_id: str) -> bytes:
        """It is no stream, so this is for nobody."""
        return faults.error_event(error, self._dialect, request_id)

    def _take(self, name: str) -> Any:
        return _value(self._fields.pop(name, _NULL))

    def _read_vectors(self, data: bytes) -> None:
        """The items in the inputs' order. Those without an index stand where they came."""
        asked = self._asked
        placed: dict[int, tuple[bytes, ...]] = {}
        length, size = asked.dimensions, 0
        for at, item in enumerate(json_slices.items(data)):
            if at >= asked.inputs:
                raise _invalid(f"more than the {asked.inputs} vectors that were asked for")
            said = {_name(name): value for name, value in json_slices.fields(item)}
            vector, numbers = read(said.pop(self._names.vector, b""), base64=asked.base64)
            index = _value(said.pop("index", _NULL))
            index = at if index is None else index
            if type(index) is not int or not 0 <= index < asked.inputs or index in placed:
                raise _invalid(f"a vector has the index {str(index)[:20]}")
            length = numbers if length is None else length
            if numbers != length:
                raise _invalid(f"a vector of {numbers} numbers instead of {length}")
            beside = {name: _value(value) for name, value in said.items()} | {"object": "embedding", "index": index}
            placed[index] = _encode(beside)[:-1] + b',"embedding":', vector, b"}"
            if (size := size + len(vector)) > self._most_bytes:
                raise self._too_large()
        if len(placed) != asked.inputs:
            raise _invalid(f"{len(placed)} vectors for {asked.inputs} inputs")
        self._vectors = [part for index in range(asked.inputs) for part in (b"," if index else b"", *placed[index])]

    def _read_usage(self, *places: Any) -> None:
        """The tokens read, under the names that servers use; some count the total alone."""
        for usage in places:
            if usage is None:
                continue
            counts = [usage.get(name) for name in _COUNTS] if type(usage) is dict else [True]
            known = [count for count in counts if count is not None]
            if not all(type(count) is int and 0 <= count <= LARGEST for count in known):
                self.usage_suspect = True
                self.usage_claim = claimed(usage, {})
                continue
            if prompt := next(filter(None, known), 0):
                self.usage = Tokens(prompt=prompt)
                self._sent = usage if "promptTokenCount" not in usage else {}
                return

    def _too_large(self) -> UpstreamFault:
        """The request's own fault: nobody rests for it, no other offer makes such an answer again, and this one is paid
        for.
        """
        message = f"The provider's answer is longer than {self._most_bytes} bytes. Send fewer inputs at once."
        fault = UpstreamFault(Fault.REJECTED, "the body is too long", message=message, code=TOO_LONG, param=READS)
        fault.made, fault.told = True, True
        return fault


def _value(text: bytes) -> Any:
    if len(text) > MOST_BESIDE:
        raise ValueError(f"a value beside the vectors is longer than {MOST_BESIDE} bytes")
    return _decode(text)


def _invalid(detail: str) -> UpstreamFault:
    return UpstreamFault(Fault.INVALID_RESPONSE, detail, unreadable=True)
