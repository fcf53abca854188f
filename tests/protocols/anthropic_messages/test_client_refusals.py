"""What a client of the Messages protocol is refused, by the path that it knows."""

from typing import Any

import pytest

from tests.protocols.anthropic_messages.requests import PNG, assistant, refused, result, text, user


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "user"}, "messages[0].content"),
        ({"content": "hi"}, "messages[0].role"),
        ({"role": "tool", "content": "hi"}, "messages[0].role"),
        (5, "messages[0]"),
        ({"role": "user", "content": 5}, "messages[0].content"),
        (user(5), "messages[0].content[0]"),  # type: ignore[arg-type]
        (user({"text": "hi"}), "messages[0].content[0].type"),
        (user({"type": "text"}), "messages[0].content[0].text"),
        (user({"type": "image"}), "messages[0].content[0].source"),
        (user({"type": "image", "source": {"type": "magic"}}), "messages[0].content[0].source.type"),
        (
            user({"type": "image", "source": {"type": "base64", "data": PNG}}),
            "messages[0].content[0].source.media_type",
        ),
        (user(text("hi", cache_control={"type": "eternal"})), "messages[0].content[0].cache_control.type"),
        (user(result("")), "messages[0].content[0].tool_use_id"),
        (user({"type": "container_upload", "file_id": "f"}), "messages[0].content[0].file_id"),
        (user(result("a", is_error="yes")), "messages[0].content[0].is_error"),
        (assistant({"type": "tool_use", "id": "a", "name": "f", "input": "x"}), "messages[0].content[0].input"),
        (assistant({"type": "thinking", "signature": "x"}), "messages[0].content[0].thinking"),
        (assistant({"type": "redacted_thinking", "data": ""}), "messages[0].content[0].data"),
    ],
)
def test_a_wrong_turn_is_refused_by_its_path(message: Any, param: str) -> None:
    assert refused(message) == param


@pytest.mark.row("B340", "B341")
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"model": None}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": {}}, "messages"),
        ({"temperature": 1.5}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"stream": "yes"}, "stream"),
        ({"system": 5}, "system"),
        ({"system": [{"type": "image"}]}, "system[0].type"),
        ({"stop_sequences": "END"}, "stop_sequences"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"stop_sequences": ["x"] * 17}, "stop_sequences"),
        ({"metadata": {"user_id": "a\nb"}}, "metadata.user_id"),
        ({"thinking": {"type": "enabled", "budget_tokens": 5}}, "thinking.budget_tokens"),
        ({"output_config": {"effort": "huge"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"service_tier": "fast"}, "service_tier"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools[0].name"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [{"name": "f", "input_schema": []}]}, "tools[0].input_schema"),
        (
            {"tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "tool", "name": "g"}},
            "tool_choice.name",
        ),
        ({"tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "most"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool", "name": "f"}}, "tool_choice.name"),
        ({"api_base": "https://x.example"}, "api_base"),
        ({"provider": {"routing": {"type": "x"}}}, "provider.routing.type"),
    ],
)
def test_a_wrong_field_is_refused_by_its_name(fields: dict[str, Any], param: str) -> None:
    assert refused(**fields) == param
