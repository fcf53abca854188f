"""Embeddings of upstreams of the Gemini protocol, for clients of OpenAI's."""

import json
from typing import Any

import pytest

from gateway.protocols.google_gemini.embeddings import Upstream
from gateway.protocols.openai_chat import Fit
from gateway.protocols.openai_embeddings import sides
from gateway.protocols.openai_embeddings.answer import VectorReader
from gateway.protocols.sides import Asking, Ours, Sent
from gateway.wire.errors import InvalidRequest, UpstreamFault

HI = {"model": "models/e", "content": {"parts": [{"text": "hi"}]}}


def sent(input: Any, **fields: Any) -> tuple[VectorReader, Sent]:
    """What reads the answer, and what a provider is sent."""
    asked = sides.read({"model": "m", "input": input, **fields})
    made = Upstream().sent(asked, Asking("models/e", 0, Fit(), "", (), "", True, "", Ours("g1", 1, "m")))
    assert asked.spoken is not None
    reader = VectorReader(asked.spoken.form, model="m")
    reader.understand(made)
    return reader, made


def answered(body: Any, input: Any = "hi", **fields: Any) -> dict[str, Any]:
    reader, _ = sent(input, **fields)
    reader.feed(json.dumps(body).encode())
    reader.end()
    made: dict[str, Any] = json.loads(reader.final())
    return made


def test_one_and_many_are_a_batch() -> None:
    _, one = sent("hi", dimensions=8, encoding_format="base64", user="u")
    assert one.path == "/models/e:batchEmbedContents"
    assert json.loads(one.body) == {"requests": [HI | {"outputDimensionality": 8}]}
    _, many = sent(["hi", "hi"], input_type="query")
    assert json.loads(many.body) == {"requests": [HI, HI]}
    assert many.ignored == ("input_type",)


@pytest.mark.parametrize("tokens", [[1, 2], [[1], [2]]])
def test_it_reads_texts_alone(tokens: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        sent(tokens)
    assert caught.value.param == "input"


def test_its_answer_is_told_in_openais_form() -> None:
    body = {"embeddings": [{"values": [1, 2.0]}, {"values": [0.5, 0]}]}
    made = answered(body, ["a", "b"])
    assert made["data"] == [
        {"object": "embedding", "index": 0, "embedding": [1, 2.0]},
        {"object": "embedding", "index": 1, "embedding": [0.5, 0]},
    ]
    assert answered(body, ["a", "b"], encoding_format="base64")["data"][0]["embedding"] == "AACAPwAAAEA="
    counted = answered({"embeddings": [{"values": [1]}], "usageMetadata": {"promptTokenCount": 3}})
    assert (counted["usage"], "usageMetadata" in counted) == ({"prompt_tokens": 3, "total_tokens": 3}, False)


@pytest.mark.parametrize("body", [7, {}, {"embeddings": []}, {"embeddings": [7]}, {"embeddings": [{"values": ["a"]}]}])
def test_what_is_no_answer_is_a_fault(body: Any) -> None:
    with pytest.raises(UpstreamFault) as caught:
        answered(body)
    assert caught.value.kind.value == "invalid_response"
