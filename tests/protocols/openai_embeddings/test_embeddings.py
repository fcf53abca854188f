"""Embeddings: what is taken, what an upstream gets, and what comes of its answer."""

import json
import struct
from base64 import b64encode
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.tokens import Tokens
from gateway.protocols.openai_chat import ChatRequest, Fit
from gateway.protocols.openai_embeddings import sides
from gateway.protocols.openai_embeddings.answer import VectorReader
from gateway.protocols.openai_embeddings.vectors import MOST_NUMBERS
from gateway.protocols.sides import Asking, Ours
from gateway.wire.errors import InvalidRequest, UpstreamFault
from tests.protocols.openai_responses.answers import sdk
from tests.protocols.strange import changed

VECTORS = [[0.5, -1.0], [0.25, 2.0], [0.0, 1.5]]


def packed(vector: list[float]) -> str:
    return b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def ask(input: Any = "hi", **fields: Any) -> dict[str, Any]:
    return {"model": "m-1", "input": input} | fields


def read(input: Any = "hi", **fields: Any) -> ChatRequest:
    return sides.read(ask(input, **fields))


def sent(asked: ChatRequest, *withheld: str) -> dict[str, Any]:
    """The body that an upstream gets."""
    fit = Fit(withheld=frozenset(withheld))
    made = sides.Upstream().sent(asked, Asking("up-1", 0, fit, "", (), "", True, "", Ours("g1", 1, "acme/m-1")))
    assert made.path == "/embeddings"
    body: dict[str, Any] = json.loads(made.body)
    return body


def reading(input: Any = "hi", **asked: Any) -> VectorReader:
    """What reads the answer."""
    spoken = read(input, **asked).spoken
    assert spoken is not None
    return VectorReader(spoken.form, model="acme/m-1", wants_cost="usage" in asked)


def body(*vectors: Any, usage: Any = None, **top: Any) -> bytes:
    """An upstream's answer."""
    data = [{"object": "embedding", "index": at, "embedding": vector} for at, vector in enumerate(vectors)]
    counts = {"prompt_tokens": 7, "total_tokens": 7} if usage is None else usage
    return json.dumps({"object": "list", "data": data, "model": "up-1", "usage": counts} | top).encode()


def answered(answer: bytes, *pieces: bytes, **asked: Any) -> tuple[VectorReader, Any]:
    """The reader, and the body a client gets."""
    reader = reading(asked.pop("input", "hi"), **asked)
    for piece in (answer, *pieces):
        assert reader.feed(piece) == []
    reader.end()
    return reader, json.loads(reader.final())


def failing(answer: bytes, **asked: Any) -> UpstreamFault:
    with pytest.raises(UpstreamFault) as caught:
        answered(answer, **asked)
    return caught.value


@pytest.mark.parametrize(
    ("input", "inputs", "most_tokens"),
    (
        ("hé", 1, 3),
        (["a", "bc"], 2, 3),
        ([1, 2, 3, 4], 1, 4),
        ([[1, 2], [3]], 2, 3),
        (["a"] * 2048, 2048, 2048),
    ),
)
def test_every_form_of_input(input: Any, inputs: int, most_tokens: int) -> None:
    request = read(input)
    assert request.spoken is not None
    assert (request.spoken.form.inputs, request.text_bytes) == (inputs, most_tokens)
    assert (request.output_cap, request.stream) == (0, False)
    assert sent(request) == {"model": "up-1", "input": input}


@pytest.mark.parametrize(
    ("body", "param"),
    (
        ([], None),
        ({"input": "a"}, "model"),
        ({"model": "m"}, "input"),
        (ask(""), "input"),
        (ask([]), "input"),
        (ask(7), "input"),
        (ask({"text": "a"}), "input"),
        (ask(["a", ""]), "input[1]"),
        (ask(["a", 1]), "input[1]"),
        (ask(["a"] * 2049), "input"),
        (ask([1] * 300_001), "input"),
        (ask([[1] * 300_000, [1]]), "input[1]"),
        (ask([1, "a"]), "input"),
        (ask([1, -1]), "input"),
        (ask([1, True]), "input"),
        (ask([1.5]), "input[0]"),
        (ask([[1], []]), "input[1]"),
        (ask([[1], "a"]), "input[1]"),
        (ask(dimensions=0), "dimensions"),
        (ask(dimensions=1.0), "dimensions"),
        (ask(encoding_format="int8"), "encoding_format"),
        (ask(user=7), "user"),
        (ask(service_tier="x" * 513), "service_tier"),
        (ask(service_tier=["flex"]), "service_tier"),
        (ask(api_key="sk-1"), "api_key"),
        (ask(model_routing_config={}), "model_routing_config"),
        (ask(provider={"routing": {"providers": []}}), "provider.routing.providers"),
    ),
)
def test_what_is_refused_is_named(body: Any, param: str | None) -> None:
    with pytest.raises(InvalidRequest) as caught:
        sides.read(body)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_what_goes_on() -> None:
    asked = {"dimensions": 2, "encoding_format": "base64", "user": "u", "input_type": "query"}
    request = read(**asked, provider={"routing": {}}, safety_identifier=None)
    assert request.spoken is not None
    assert (request.spoken.form.base64, request.end_user, request.unknown) == (True, "u", ("input_type",))
    assert sent(request, "encoding_format") == {
        "model": "up-1",
        "input": "hi",
        "dimensions": 2,
        "user": "u",
        "input_type": "query",
    }


def test_a_deployment_has_its_name_in_the_path() -> None:
    asking = Asking("up-1", 0, Fit(), "", (), "", True, "deployments", Ours("g1", 1, "m"))
    assert sides.Upstream().sent(read(), asking).path == "/deployments/up-1/embeddings"


def test_numbers_pass_as_they_are_written() -> None:
    answer = b'{"data":[{"index":0,"embedding":[0.1000,-1e-3]}],"usage":{"prompt_tokens":2,"total_tokens":2}}'
    reader = reading()
    reader.feed(answer)
    reader.end()
    assert b'"embedding":[0.1000,-1e-3]' in reader.final()


@pytest.mark.parametrize("given", (VECTORS[0], packed(VECTORS[0])), ids=("numbers", "base64"))
@pytest.mark.parametrize(
    ("encoding", "expected"), ((None, VECTORS[0]), ("float", VECTORS[0]), ("base64", packed(VECTORS[0])))
)
def test_the_client_gets_the_encoding_it_asked_for(given: Any, encoding: str | None, expected: Any) -> None:
    reader, made = answered(body(given), encoding_format=encoding)
    assert made == {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": expected}],
        "model": "acme/m-1",
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    }
    assert reader.usage == Tokens(prompt=7)
    assert reader.meaningful
    assert reader.complete


def test_vectors_stand_in_the_order_of_the_inputs() -> None:
    shuffled = [{"index": at, "embedding": VECTORS[at]} for at in (2, 0, 1)]
    _, made = answered(body(data=shuffled), input=["a", "b", "c"])
    assert [item["embedding"] for item in made["data"]] == VECTORS
    assert [item["index"] for item in made["data"]] == [0, 1, 2]
    unnumbered = [{"embedding": vector} for vector in VECTORS]
    _, made = answered(body(data=unnumbered), input=["a", "b", "c"])
    assert [item["embedding"] for item in made["data"]] == VECTORS


def test_where_the_bytes_are_cut_makes_no_difference() -> None:
    answer = body(*VECTORS)
    expected = answered(answer, input=["a", "b", "c"])[1]
    for at in range(1, len(answer)):
        assert answered(answer[:at], answer[at:], input=["a", "b", "c"])[1] == expected


@pytest.mark.parametrize(
    "answer",
    (
        b"",
        b"[]",
        b"{",
        b"{}",
        body(),
        body(*VECTORS),
        body([]),
        body(""),
        body("AAA="),
        body("!!!!"),
        body(None),
        body(["a"]),
        body({"a": 1}),
        body(packed([float("nan")])),
        body(packed([float("inf")])),
        body(data=[{"index": 1, "embedding": [1]}]),
        body(data=[{"index": -1, "embedding": [1]}]),
        body(data=[{"index": "0", "embedding": [1]}]),
        body(data=["a"]),
        b'{"data":[{"index":0,"embedding":[NaN]}]}',
    ),
)
@pytest.mark.parametrize("encoding", ("float", "base64"))
def test_what_is_no_answer_to_what_was_asked_is_none(answer: bytes, encoding: str) -> None:
    error = failing(answer, encoding_format=encoding)
    assert (error.kind.value, error.retryable) == ("invalid_response", True)


def test_a_vector_of_another_size_is_none() -> None:
    assert failing(body([1.0, 2.0]), dimensions=3).detail == "a vector of 2 numbers instead of 3"
    assert failing(body([1.0], [1.0, 2.0]), input=["a", "b"]).detail == "a vector of 2 numbers instead of 1"
    assert failing(body([0] * (MOST_NUMBERS + 1))).detail == f"a vector is none: it has {MOST_NUMBERS + 1} numbers"
    assert failing(body("A" * 33 * MOST_NUMBERS)).detail.startswith("a vector is none: it is longer than")


def test_a_body_is_bounded_as_it_comes_and_as_it_goes() -> None:
    spoken = read().spoken
    assert spoken is not None
    reader = VectorReader(spoken.form, model="m", most_bytes=100)
    with pytest.raises(UpstreamFault) as caught:
        reader.feed(b" " * 101)
    assert (caught.value.code, caught.value.param, caught.value.retryable) == ("answer_too_long", "input", False)
    reader = VectorReader(spoken.form, model="m", most_bytes=100)
    reader.feed(b'{"data":[{"embedding":"%b"}]}' % packed([1 / 3] * 12).encode())
    with pytest.raises(UpstreamFault) as caught:
        reader.end()
    assert "longer than 100 bytes" in caught.value.message


def test_it_is_a_chat_for_whoever_plans_and_estimates() -> None:
    asked = read(["ab", "c"], dimensions=2)
    assert asked.body["messages"] == [{"role": "user", "content": text} for text in ("ab", "c")]
    assert asked.makes == {"embeddings"}
    assert (asked.tokens, read([1, 2]).tokens) == (0, 2)


def test_two_vectors_of_one_index_are_none() -> None:
    twice = [{"index": 0, "embedding": [1]}] * 2
    assert failing(body(data=twice), input=["a", "b"]).kind.value == "invalid_response"


def test_numbers_that_no_float_holds_are_none() -> None:
    assert failing(body([1e39]), encoding_format="base64").kind.value == "invalid_response"


def test_an_error_in_a_200_is_one() -> None:
    answer = b'{"error":{"message":"Rate limit","type":"rate_limit_exceeded","code":429}}'
    assert failing(answer).kind.value == "rate_limited"


@pytest.mark.parametrize(
    ("usage", "prompt", "suspect"),
    (
        ({"total_tokens": 9}, 9, False),
        ({"prompt_tokens": 5, "total_tokens": 9}, 5, False),
        ({"prompt_tokens": 0, "total_tokens": 0}, None, False),
        ({"prompt_tokens": -1}, None, True),
        ({"prompt_tokens": 1.5}, None, True),
        ({"prompt_tokens": True}, None, True),
        ({"prompt_tokens": 10**12}, None, True),
        ("7", None, True),
    ),
)
def test_usage_is_read_with_suspicion(usage: Any, prompt: int | None, suspect: bool) -> None:
    reader, _ = answered(body([1.0], usage=usage))
    assert (reader.usage and reader.usage.prompt, reader.usage_suspect) == (prompt, suspect)


def test_usage_that_cannot_be_is_no_count_and_kept() -> None:
    reader, _ = answered(body([1.0], usage={"total_tokens": 900_000}))
    reader.disbelieve()
    assert (reader.usage, reader.counted, reader.usage_suspect) == (None, False, True)
    assert reader.usage_claim == {"said": {"total_tokens": 900_000}}


def test_what_is_billed_is_shown_and_what_the_operator_pays_is_not() -> None:
    answer = body([1.0], usage={"prompt_tokens": 5, "total_tokens": 5, "cost": 0.1, "images": 2}, id="emb-1")
    reader = reading(usage={"include": True})
    reader.feed(answer)
    reader.end()
    reader.set_usage(Tokens(prompt=6))
    reader.set_cost(Decimal("0.00000012"))
    made = json.loads(reader.final())
    assert made["usage"] == {"prompt_tokens": 6, "total_tokens": 6, "images": 2, "cost": 1.2e-7}
    assert made["id"] == "emb-1"


def test_what_is_strange_is_taken_or_refused_by_name_and_read_or_a_fault() -> None:
    for asked in changed(ask(["a"], dimensions=2, encoding_format="float", user="u")):
        try:
            assert sent(sides.read(asked))
        except InvalidRequest as error:
            assert error.param
    for strange in changed(json.loads(body([1.0]))):
        try:
            answered(json.dumps(strange).encode())
        except UpstreamFault:
            continue


def test_the_official_sdk_reads_both() -> None:
    """Its default asks for base64 and gives numbers."""
    for vector in (VECTORS[0], packed(VECTORS[0])):
        reader = reading(encoding_format="base64")
        reader.feed(body(vector))
        reader.end()
        made = sdk(reader.final(), "application/json").embeddings.create(model="m-1", input="hi")
        assert made.data[0].embedding == VECTORS[0]
        assert made.usage.prompt_tokens == 7


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=50))
def test_a_vector_keeps_its_numbers_through_both_forms(vector: list[float]) -> None:
    in_base64 = answered(body(vector), encoding_format="base64")[1]["data"][0]["embedding"]
    assert in_base64 == packed(vector)
    assert answered(body(in_base64))[1]["data"][0]["embedding"] == vector
