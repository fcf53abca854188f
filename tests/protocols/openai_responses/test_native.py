"""A client and a provider that both speak the protocol."""

import json
from typing import Any

import pytest

from gateway.protocols.openai_responses import carried
from gateway.protocols.openai_responses.native import AnswerWriter, body
from gateway.protocols.openai_responses.thoughts import pack
from gateway.wire import sse
from gateway.wire.errors import UpstreamFault
from routing.health.faults import Fault
from tests.protocols.openai_responses.answers import CASES, drawn, events, recorded, recorded_whole


def sent(asked: dict[str, Any], **how: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {"model": "up-1", "output_cap": None, "stream": True, "store": False, "reasons": False}
    return body({"model": "m-1", "input": "hi"} | asked, **settings | how)


def passed(stream: bytes, **how: Any) -> bytes:
    """What a client is sent of a provider's stream."""
    out = AnswerWriter(id="resp_ours", created=1700000000, model="acme/m-1", **how)
    frames = [out.event(name.decode(), json.loads(data), data) for name, data in sse.EventReader().feed(stream)]
    return b"".join(frames) + out.final()


def test_everything_passes_but_what_the_gateway_decides() -> None:
    asked = {
        "tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}],
        "context_management": [{"type": "compaction"}],
        "a_new_field": 1,
        "provider": {"routing": {}},
        "store": True,
        "previous_response_id": "resp_sealed",
    }
    assert sent(asked, output_cap=3, previous="resp_up") == {
        "model": "up-1",
        "input": "hi",
        "tools": asked["tools"],
        "context_management": asked["context_management"],
        "a_new_field": 1,
        "stream": True,
        "store": False,
        "max_output_tokens": 16,
        "previous_response_id": "resp_up",
    }
    assert "previous_response_id" not in sent(asked)


def test_the_clients_own_is_not_changed() -> None:
    asked = {
        "text": {"verbosity": "low"},
        "input": [{"type": "message", "id": "msg_1", "role": "user", "content": "a"}],
    }
    before = json.dumps(asked)
    sent(asked, withheld={"verbosity"})
    assert json.dumps(asked) == before


def test_thoughts_are_asked_for_in_the_form_that_brings_them_back() -> None:
    assert sent({"include": ["x"]}, reasons=True)["include"] == ["x", "reasoning.encrypted_content"]
    assert sent({"include": ["reasoning.encrypted_content"]}, reasons=True)["include"] == [
        "reasoning.encrypted_content"
    ]
    assert "include" not in sent({})


def test_withheld_fields_go_by_the_chat_forms_names() -> None:
    asked = {"text": {"verbosity": "low", "format": {"type": "text"}}, "temperature": 1, "reasoning": {"effort": "low"}}
    made = sent(asked, withheld={"verbosity", "temperature", "reasoning_effort", "max_completion_tokens"})
    assert (made["text"], made["reasoning"]) == ({"format": {"type": "text"}}, {})
    assert "temperature" not in made


def test_withheld_members_of_lists_go_alone() -> None:
    part = {"type": "input_text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}}
    function = {"type": "function", "name": "f"}
    asked: dict[str, Any] = {
        "include": ["message.output_text.logprobs", "reasoning.encrypted_content"],
        "tools": [{"type": "web_search"}, function],
        "input": [{"role": "user", "content": [part]}, {"role": "user", "content": "b"}],
    }
    made = sent(asked, withheld={"logprobs", "web_search_options", "cache_control"})
    assert made["include"] == ["reasoning.encrypted_content"]
    assert made["tools"] == [function]
    assert made["input"] == [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}, asked["input"][1]]


def test_ids_name_nothing_in_an_account_that_tenants_share() -> None:
    items = [
        {"type": "message", "id": "msg_1", "role": "assistant", "content": "a", "phase": "commentary"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
        {"type": "reasoning", "id": "rs_2", "summary": []},
        {"type": "reasoning", "id": "rs_3", "summary": [], "encrypted_content": pack([{"type": "reasoning.text"}])},
        {"type": "function_call", "id": "fc_1", "call_id": "k" * 80, "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "k" * 80, "output": "1"},
        {"role": "user", "content": "b"},
    ]
    message, thought, call, result, last = sent({"input": items})["input"]
    assert message == {"type": "message", "role": "assistant", "content": "a", "phase": "commentary"}
    assert thought == items[1]
    assert "id" not in call
    assert call["call_id"] == result["call_id"]
    assert len(call["call_id"]) == 64
    assert last == items[6]


def test_files_are_put_in() -> None:
    file = {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf"}
    part = {"type": "input_file", "file_id": "file-1"}
    made = sent({"input": [{"role": "user", "content": [part]}]}, files={"file-1": file})
    assert made["input"][0]["content"] == [{"type": "input_file"} | file]


@pytest.mark.parametrize("case", CASES)
def test_a_stream_passes_with_the_gateways_identity(case: str) -> None:
    made = events(passed(recorded(case), previous="resp_before"))
    theirs = [json.loads(data) for _, data in sse.EventReader().feed(recorded(case))]
    for event, their in zip(made, theirs, strict=True):
        if "response" in event:
            response = event.pop("response")
            identity = (response["id"], response["model"], response["created_at"], response["previous_response_id"])
            assert identity == ("resp_ours", "acme/m-1", 1700000000, "resp_before")
            assert response["output"] == their.pop("response")["output"]
        assert event == their
    assert drawn(passed(recorded(case))).output_text == drawn(recorded(case)).output_text


def test_the_last_event_waits_and_shows_what_is_billed() -> None:
    out = AnswerWriter(id="r", created=1, model="m")
    frames = [
        out.event(name.decode(), json.loads(data), data) for name, data in sse.EventReader().feed(recorded("text"))
    ]
    assert frames[-1] == b""
    usage = {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}
    ((name, data),) = sse.EventReader().feed(out.final(usage))
    assert name == b"response.completed"
    shown = json.loads(data)["response"]["usage"]
    assert (shown["input_tokens"], shown["output_tokens"], shown["total_tokens"]) == (5, 6, 11)


def test_a_whole_answer_passes() -> None:
    out = AnswerWriter(id="r", created=1, model="m")
    out.whole(recorded_whole("reasoning_tools"))
    made = json.loads(out.final())
    assert (made["id"], made["model"]) == ("r", "m")
    assert made["output"] == recorded_whole("reasoning_tools")["output"]


@pytest.mark.parametrize("case", ("error_midway", "error_at_once"))
def test_a_failure_is_told_by_the_gateway_alone(case: str) -> None:
    out = AnswerWriter(id="r", created=1, model="m")
    stream = b"".join(
        out.event(name.decode(), json.loads(data), data) for name, data in sse.EventReader().feed(recorded(case))
    )
    stream += out.error_event(UpstreamFault(Fault.SERVER_ERROR, "secret"))
    made = events(stream)
    assert [event["type"] for event in made][-2:] == ["error", "response.failed"]
    assert made[-1]["response"]["id"] == "r"
    assert b"An error occurred while processing" not in stream
    assert b"secret" not in stream


@pytest.mark.parametrize("case", ["text", "reasoning_tools"])
def test_every_event_has_the_id_that_stands_for_what_is_kept(case: str) -> None:
    asked: list[str] = []

    def sealed(id: str) -> str:
        asked.append(id)
        return f"resp_sealed_{len(asked)}"

    told = [event["response"]["id"] for event in events(passed(recorded(case), sealed=sealed)) if "response" in event]
    assert told == ["resp_sealed_1"] * 3
    out = AnswerWriter(id="r", created=1, model="m", sealed=sealed)
    out.whole(recorded_whole(case))
    assert json.loads(out.final())["id"] == "resp_sealed_2"
    assert asked == [
        json.loads(sse.EventReader().feed(recorded(case))[0][1])["response"]["id"],
        recorded_whole(case)["id"],
    ]


@pytest.mark.parametrize("case", ["text", "reasoning_tools"])
def test_an_answer_ends_with_what_carries_its_items(case: str) -> None:
    made = events(passed(recorded(case), carries=True))
    assert [event["sequence_number"] for event in made] == list(range(len(made)))
    *items, carrier = made[-1]["response"]["output"]
    assert [event["item"] for event in made[-3:-1]] == [carrier] * 2
    assert {event["output_index"] for event in made[-3:-1]} == {len(items)}
    named = [{"type": "item_reference", "id": item["id"]} for item in (*items, carrier)]
    assert carried.unpacked(named) == {item["id"]: [item] for item in items}
    assert sent({"input": named}, referred=items) == sent({"input": items})
    out = AnswerWriter(id="r", created=1, model="m", carries=True)
    out.whole(recorded_whole(case))
    assert carried.unpacked(json.loads(out.final())["output"]).keys() == {
        i["id"] for i in recorded_whole(case)["output"]
    }
