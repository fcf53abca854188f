"""The answer of an embeddings upstream, read from the bytes of a 2xx body, in the encoding the client asked for.

There is one vector for each input, in the inputs' order, whatever order and encoding the upstream gave. The body is
held back for `final`, so that the relay can settle first. Vectors in the client's encoding pass byte for byte.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

from billing.tokens import LARGEST, Tokens
from gateway.protocols.openai_chat.answer.faults import fault_in_answer
from gateway.protocols.openai_embeddings.request import EmbeddingsRequest
from gateway.protocols.openai_embeddings.vectors import NoVector, as_base64, as_numbers
from gateway.wire.errors import UpstreamFault
from routing.health.faults import Fault

# A thousand vectors of three thousand numbers. A client that asks for more splits its batch.
MAX_BODY = 64 << 20
_PRIVATE = frozenset({"cost", "cost_details"})  # what the provider bills the operator

_Raw = dict[str, msgspec.Raw]
_decode = msgspec.json.Decoder(_Raw).decode
_decode_items = msgspec.json.Decoder(list[_Raw]).decode
_decode_value = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class AnswerReader:
    """Reads one answer. `feed` its bytes, call `end` when they end, settle, then send `final`.

    `model` is what the client is shown. What it knows is what `gateway.protocols.Answer` says.
    """

    finish_reason: str | None = None
    native_finish_reason: str | None = None
    relayed_bytes = reasoning_bytes = 0  # nothing is written

    def __init__(self, request: EmbeddingsRequest, *, model: str) -> None:
        self.meaningful = self.complete = False
        self.upstream_id = ""
        self.fault: UpstreamFault | None = None
        self.usage: Tokens | None = None
        self.usage_suspect = False
        self._request = request
        self._model = model
        self._body = bytearray()
        self._answer: dict[str, Any] = {}
        self._sent: dict[str, Any] = {}
        self._shown: Tokens | None = None
        self._cost: Decimal | None = None

    @property
    def begun(self) -> bool:
        """Whether an answer is under way."""
        return bool(self._body) or self.complete

    @property
    def unread(self) -> int:
        """Bytes that wait for the rest of their body."""
        return len(self._body)

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes as they came. Raises `UpstreamFault`."""
        self._body += data
        if len(self._body) > MAX_BODY:
            raise _invalid(f"the body is longer than {MAX_BODY} bytes")
        return []

    def end(self) -> None:
        """The body ended. Raises `UpstreamFault` if it is no answer to what was asked."""
        body = bytes(self._body)
        self._body.clear()
        try:
            answer = _decode(body)
        except ValueError as error:
            raise _invalid(f"the body is not a JSON object: {error}") from None
        if failure := _decode_value(answer.get("error", b"null")):
            raise fault_in_answer(failure, body)
        self._read_usage(answer.pop("usage", None))
        data = self._vectors(answer.pop("data", None))
        self._answer = {**answer, "object": "list", "data": data, "model": self._model}
        self.meaningful = self.complete = True

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
        if self._cost is not None:
            usage["cost"] = msgspec.Raw(f"{self._cost.normalize():f}".encode())
        return _encode(self._answer | {"usage": usage})

    def _vectors(self, data: msgspec.Raw | None) -> list[Mapping[str, Any]]:
        """The items in the inputs' order. Those without an index stand where they came."""
        try:
            items = _decode_items(data or b"")
        except ValueError as error:
            raise _invalid(f"data is not an array of objects: {error}") from None
        if len(items) != self._request.inputs:
            raise _invalid(f"{len(items)} vectors for {self._request.inputs} inputs")
        convert = as_base64 if self._request.base64 else as_numbers
        placed: dict[int, Mapping[str, Any]] = {}
        for at, item in enumerate(items):
            index = _decode_value(item["index"]) if "index" in item else at
            if type(index) is not int or not 0 <= index < len(items) or index in placed:
                raise _invalid(f"a vector has the index {str(index)[:20]}")
            try:
                vector = convert(bytes(item.get("embedding", b"")))
            except NoVector as error:
                raise _invalid(f"vector {index}: {error}") from None
            placed[index] = {**item, "object": "embedding", "index": index, "embedding": msgspec.Raw(vector)}
        return [placed[index] for index in range(len(items))]

    def _read_usage(self, sent: msgspec.Raw | None) -> None:
        """The tokens read, under the names that servers use; some count the total alone."""
        usage = None if sent is None else _decode_value(sent)
        if usage is None:
            return
        counts = [usage.get(name) for name in _COUNTS] if type(usage) is dict else [None]
        known = [count for count in counts if count is not None]
        if type(usage) is not dict or not all(type(count) is int and 0 <= count <= LARGEST for count in known):
            self.usage_suspect = True
            return
        self._sent = usage
        if prompt := next(filter(None, known), 0):
            self.usage = Tokens(prompt=prompt)


_COUNTS = ("prompt_tokens", "input_tokens", "total_tokens")


def _invalid(detail: str) -> UpstreamFault:
    return UpstreamFault(Fault.INVALID_RESPONSE, detail, unreadable=True)
