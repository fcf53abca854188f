"""Embeddings of the Gemini protocol, both ways."""

import json
from typing import Any

import pytest

from gateway.protocols.google_gemini.embeddings import (
    client_body,
    embeddings_form,
    openai_answer,
    upstream_body,
    upstream_path,
)
from gateway.wire.errors import InvalidRequest, UpstreamFault

HI = {"content": {"parts": [{"text": "hi"}]}}


def test_one_and_many() -> None:
    one = embeddings_form(HI | {"output_dimensionality": 8}, model="e", batch=False)
    assert (one.body, one.single) == ({"model": "e", "input": ["hi"], "dimensions": 8}, True)
    many = embeddings_form({"requests": [HI | {"model": "models/e"}, HI]}, model="e", batch=True)
    assert (many.body, many.only_native) == ({"model": "e", "input": ["hi", "hi"]}, ())
    answer = {"data": [{"index": 1, "embedding": [3, 4]}, {"index": 0, "embedding": "AACAPwAAAEA="}]}
    assert json.loads(client_body(many, answer)) == {"embeddings": [{"values": [1.0, 2.0]}, {"values": [3, 4]}]}
    assert json.loads(client_body(one, {"data": answer["data"][1:]})) == {"embedding": {"values": [1.0, 2.0]}}


def test_what_only_google_has_is_named() -> None:
    form = embeddings_form({"requests": [HI | {"taskType": "CLUSTERING", "title": "t"}]}, model="e", batch=True)
    assert form.only_native == ("requests[0].taskType", "requests[0].title")


@pytest.mark.parametrize(("body", "param"), [
    ({"requests": []}, "requests"),
    ({"requests": 7}, "requests"),
    ({"requests": [{}]}, "requests[0].content"),
    ({"requests": [HI, {"content": {"parts": [{"inlineData": {}}]}}]}, "requests[1].content.parts[0]"),
    ({"requests": [{"content": {"parts": []}}]}, "requests[0].content.parts"),
    ({"requests": [HI, HI | {"outputDimensionality": 8}]}, "requests"),
    ({"requests": [HI | {"outputDimensionality": "8"}]}, "requests[0].outputDimensionality"),
    ({"requests": [HI | {"model": "models/other"}]}, "requests[0].model"),
    ({"requests": [HI | {"model": 7}]}, "requests[0].model"),
])  # fmt: skip
def test_refusals(body: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        embeddings_form(body, model="e", batch=True)
    assert caught.value.param == param


def test_a_provider_is_sent_a_batch() -> None:
    assert upstream_path("e") == "/models/e:batchEmbedContents"
    asked = {"model": "x", "input": "hi", "dimensions": 8, "encoding_format": "base64"}
    assert upstream_body(asked, model="e") == {"requests": [HI | {"model": "models/e", "outputDimensionality": 8}]}
    assert len(upstream_body({"input": ["a", "b"]}, model="e")["requests"]) == 2
    with pytest.raises(InvalidRequest):
        upstream_body({"input": [1, 2]}, model="e")


def test_what_a_provider_answers() -> None:
    body = {"embeddings": [{"values": [1, 2.0]}, {"values": [0.5]}]}
    floats = openai_answer(body, base64=False)["data"]
    assert [(entry["index"], entry["embedding"]) for entry in floats] == [(0, [1, 2.0]), (1, [0.5])]
    assert openai_answer(body, base64=True)["data"][0]["embedding"] == "AACAPwAAAEA="


def test_numbers_that_fit_nowhere_are_a_fault() -> None:
    with pytest.raises(UpstreamFault):
        openai_answer({"embeddings": [{"values": [1e300]}]}, base64=True)
    form = embeddings_form(HI, model="e", batch=False)
    for embedding in ("AAA=", "!", None):
        with pytest.raises(UpstreamFault):
            client_body(form, {"data": [{"index": 0, "embedding": embedding}]})


@pytest.mark.parametrize("body", [7, {}, {"embeddings": []}, {"embeddings": [7]}, {"embeddings": [{"values": ["a"]}]}])
def test_what_is_no_answer_is_a_fault(body: Any) -> None:
    with pytest.raises(UpstreamFault):
        openai_answer(body, base64=False)
