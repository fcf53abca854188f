"""Log probabilities: for those who asked, as the upstream sent them."""

from typing import Any

import pytest

from gateway.wire.dialects import EZROUTER
from tests.protocols.openai_chat.answers import DONE, chunk, relay, relay_at_every_cut, usage, whole


def token(text: str, logprob: float = -0.01, **more: Any) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode()), "top_logprobs": []} | more


RECORD: dict[str, Any] = {
    "content": [
        token("Yes", top_logprobs=[token("Yes"), {"token": "<x>", "logprob": -9999.0, "bytes": None}]),
        token("!"),
    ],
    "refusal": None,
    "reasoning_content": [token("Hm")],
}
STOP = chunk({}, "stop")


@pytest.mark.row("B229")
@pytest.mark.parametrize("asked", [{}, {"logprobs": False}, {"logprobs": None}])
@pytest.mark.parametrize("sent", [RECORD, {"content": [], "refusal": None}, None])
def test_who_did_not_ask_gets_null(asked: dict[str, Any], sent: Any) -> None:
    streamed = chunk({"content": "Yes!"}, choice={"logprobs": sent}) + STOP + DONE
    for upstream in (streamed, whole({"content": "Yes!"}, logprobs=sent)):
        (choice,) = relay_at_every_cut(upstream, stream=False, **asked).body["choices"]
        assert choice["logprobs"] is None
        seen = relay_at_every_cut(upstream, **asked)
        assert all(choice.get("logprobs") is None for made in seen.chunks for choice in made["choices"])


@pytest.mark.row("B229", "B230", "B231", "B232", "B234")
def test_who_asked_gets_them_unchanged_wherever_they_came() -> None:
    streamed = (
        chunk({"role": "assistant", "content": ""}, choice={"logprobs": None})
        + chunk({"reasoning": "Hm"}, choice={"logprobs": {"reasoning_content": RECORD["reasoning_content"]}})
        + chunk({"content": "Yes"}, choice={"logprobs": {"content": RECORD["content"][:1], "refusal": None}})
        + chunk({"content": "!"}, "stop", choice={"logprobs": {"content": RECORD["content"][1:], "refusal": None}})
        + DONE
    )
    asked: dict[str, Any] = {"logprobs": True, "top_logprobs": 3}
    assert relay_at_every_cut(streamed, stream=False, **asked).body["choices"][0]["logprobs"] == RECORD
    seen = relay_at_every_cut(streamed, **asked)
    assert [made["choices"][0].get("logprobs") for made in seen.chunks] == [
        None,
        {"reasoning_content": RECORD["reasoning_content"]},
        {"content": RECORD["content"][:1], "refusal": None},
        {"content": RECORD["content"][1:], "refusal": None},
        None,
    ]
    assert b'"logprob":-9999.0' in seen.early


@pytest.mark.row("B233")
def test_a_refusal_s_tokens_are_records_too() -> None:
    records = [(text, {"content": None, "refusal": [token(text)]}) for text in ("I ", "won't")]
    upstream = b"".join(chunk({"refusal": text}, choice={"logprobs": record}) for text, record in records)
    (choice,) = relay_at_every_cut(upstream + STOP + DONE, stream=False, logprobs=True).body["choices"]
    assert choice["logprobs"]["refusal"] == [token("I "), token("won't")]


@pytest.mark.row("B230")
def test_tokens_on_the_last_chunk_are_not_lost() -> None:
    upstream = chunk({"content": "a"}) + chunk({}, "stop", choice={"logprobs": RECORD}) + usage(3, 1) + DONE
    (choice,) = relay_at_every_cut(upstream, stream=False, logprobs=True).body["choices"]
    assert choice["logprobs"] == RECORD
    assert relay_at_every_cut(upstream, logprobs=True).chunks[-1]["choices"][0]["logprobs"] == RECORD


@pytest.mark.row("B268")
def test_one_dialect_writes_null_on_every_chunk_without() -> None:
    upstream = chunk({"content": "Yes"}, choice={"logprobs": RECORD}) + chunk({"content": "!"}) + STOP + DONE
    seen = relay([upstream], logprobs=True, dialect=EZROUTER)
    assert [made["choices"][0]["logprobs"] for made in seen.chunks if made["choices"]] == [RECORD, None, None]
