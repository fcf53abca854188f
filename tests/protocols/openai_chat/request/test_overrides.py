"""Fields that would turn the gateway's dial elsewhere are refused by name, however they are spelled."""

from typing import Any

import pytest

from gateway.protocols.openai_chat import parse
from gateway.wire.errors import InvalidRequest

HELLO: dict[str, Any] = {"model": "m-1", "messages": [{"role": "user", "content": "hi"}]}


def refused(**fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        parse(HELLO | fields, 100)
    return caught.value


@pytest.mark.parametrize(
    "name",
    [
        *("api_base", "base_url", "baseURL", "Api-Base", "API_KEY", "apiKey", "api-version", "api_type"),
        *("organization", "custom_llm_provider", "extra_headers", "extraHeaders", "headers", "Authorization"),
        *("proxy", "proxies", "azure_endpoint", "azure_ad_token", "vertex_project", "Vertex-Credentials"),
        *("aws_access_key_id", "aws_secret_access_key", "aws_region_name", "endpoint", "credentials"),
    ],
)
@pytest.mark.parametrize("value", ["http://169.254.169.254/", None, {}])
def test_overrides_of_the_dial_are_refused_by_name(name: str, value: Any) -> None:
    error = refused(**{name: value})
    assert (error.param, error.code) == (name, "forbidden_parameter")
    assert name in error.message
    assert "169.254" not in error.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"extra_body": {"api_base": "x"}}, "extra_body.api_base"),
        ({"extra-body": {"a": {"Base_URL": "x"}}}, "extra-body.a.Base_URL"),
        ({"provider": {"openai": {"apiKey": "x"}}}, "provider.openai.apiKey"),
        ({"providerOptions": {"gateway": {"headers": {}}}}, "providerOptions.gateway.headers"),
        ({"litellm_params": {"aws_session_token": "x"}}, "litellm_params.aws_session_token"),
        ({"fallbacks": [{"model": "m", "api_base": "x"}]}, "fallbacks.api_base"),
        (
            {"user_config": {"model_list": [{"litellm_params": {"api_base": "x"}}]}},
            "user_config.model_list.litellm_params.api_base",
        ),
    ],
)
def test_overrides_are_found_inside_objects_that_carry_them(fields: dict[str, Any], param: str) -> None:
    error = refused(**fields)
    assert (error.param, error.code) == (param, "forbidden_parameter")


def test_the_same_names_elsewhere_are_the_client_s_own_words() -> None:
    schema = {"type": "object", "properties": {"api_key": {"type": "string"}, "headers": {"type": "object"}}}
    fields = {
        "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
        "metadata": {"organization": "x"},
        "chat_template_kwargs": {"headers": True},
        "logit_bias": {"50256": -100},
    }
    assert parse(HELLO | fields, 100).body == HELLO | fields
