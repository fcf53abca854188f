"""A prompt that is too long is known for one, however a server says it: a fallback with more room depends on it."""

import json
from typing import Any

import pytest

from gateway.protocols.openai_chat import fault_from_response
from gateway.protocols.openai_chat.faults import fault_in_answer
from routing.health.faults import Fault


def said(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message} | fields}


TOO_LONG: list[tuple[int, Any]] = [
    (400, said("This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
               code="context_length_exceeded", param="messages")),
    (400, said("Your input exceeds the context window of this model. Please adjust your input and try again.")),
    (400, {"object": "error", "message": "This model's maximum context length is 4096 tokens. However, you requested "
           "5000 tokens", "type": "BadRequestError", "param": None, "code": 400}),
    (400, said("This model's maximum context length is 8192 tokens.", type="BadRequestError", param="input_tokens")),
    (400, said("The decoder prompt (length 9000) is longer than the maximum model length of 8192.")),
    (400, said("The prompt (total length 9000) is too long to fit into the model (context length 8192).")),
    (400, said("request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it", code=400,
               type="exceed_context_size_error", n_prompt_tokens=4390, n_ctx=4096)),
    (400, said("The request exceeds the available context size. Try increasing the context size", code=400)),
    (500, said("Context size has been exceeded.", code=500, type="server_error")),
    (500, said("the request exceeds the available context size", code=500, type="exceed_context_size_error")),
    (400, said("Requested tokens (2285) exceed context window of 2048", code="context_length_exceeded")),
    (400, said("prompt too long; exceeded max context length by 812 tokens")),
    (400, said("the input length exceeds the context length")),
    (400, said("The number of tokens to keep from the initial prompt is greater than the context length.")),
    (400, said("the model is loaded with context length of only 4096 tokens, which is not enough")),
    (422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` "
           "tokens and 20 `max_new_tokens`", "error_type": "validation"}),
    (422, {"error": "Input validation error: `inputs` must have less than 4095 tokens. Given: 5000"}),
    (400, {"object": "error", "message": "The input (9000 tokens) is longer than the model's context length (8192 "
           "tokens).", "type": "BadRequestError", "code": 400}),
    (400, said("Requested token count exceeds the model's maximum context length of 8192 tokens.")),
    (400, said("Input length (9000 tokens) exceeds the maximum allowed length (8192 tokens).")),
    (400, {"message": "Input is too long for requested model."}),
    (400, {"message": "Too many input tokens. Max input tokens: 8192, request input token count: 9000"}),
    (400, said("The input token count (9000) exceeds the maximum number of tokens allowed (8192).", code=400,
               status="INVALID_ARGUMENT")),
    (400, said("Unable to submit request because the input token count is 9000 but model only supports up to 8192.")),
    (400, {"object": "error", "message": "Prompt contains 9000 tokens and 0 draft tokens, too large for model with "
           "8192 maximum context length", "type": "invalid_request_prompt", "code": "3051"}),
    (400, said("Please reduce the length of the messages or completion.", type="invalid_request_error")),
    (400, said("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]",
               code="invalid_parameter_error", type="invalid_request_error")),
    (400, {"code": "Client specified an invalid argument", "error": "This model's maximum prompt length is 131072 but "
           "the request contains 537812 tokens."}),
    (400, said("The prompt is too long: 9000, model maximum context length: 8192")),
    (400, {"type": "error", "error": {"type": "invalid_request_error",
                                      "message": "prompt is too long: 213462 tokens > 200000 maximum"}}),
    (400, {"type": "error", "error": {"type": "invalid_request_error",
           "message": "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000"}}),
    (400, said("too many tokens: total number of tokens in the prompt cannot exceed 4081")),
    (400, said("invalid params, context window exceeds limit (2013)")),
    (400, said("Invalid request: Your request exceeded model token limit: 131072 (requested: 200000)")),
    (400, said("Prompt exceeds max length", code="1261")),
    (413, said("Request body too large for m model. Max size: 8000 tokens.", code="tokens_limit_reached")),
    (400, said("Provider returned error", code=400, metadata={
        "raw": '{"error":{"message":"This endpoint\'s maximum context length is 8192 tokens."}}'})),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body"), TOO_LONG)
def test_it_is_known_in_whatever_words(status: int, body: Any) -> None:
    fault = fault_from_response(status, {}, json.dumps(body).encode())
    assert (fault.kind, fault.code, fault.retryable) == (Fault.REJECTED, "context_length_exceeded", False)
    assert fault.status == (status if status in (400, 413, 422) else 400)


@pytest.mark.parametrize(("status", "body"), TOO_LONG)
def test_it_is_known_in_an_event_of_a_stream(status: int, body: dict[str, Any]) -> None:
    fault = fault_in_answer(body.get("error") or body, json.dumps(body).encode())
    assert (fault.kind, fault.code) == (Fault.REJECTED, "context_length_exceeded")


@pytest.mark.parametrize(
    ("status", "body", "kind", "code"),
    [
        (429, said("Too many tokens, please wait before trying again."), Fault.RATE_LIMITED, "upstream_rate_limited"),
        (400, said("Too many tokens, please wait before trying again."), Fault.REJECTED, "upstream_rejected"),
        (429, said("This model's maximum context length is 8192 tokens."), Fault.RATE_LIMITED, "upstream_rate_limited"),
        (400, said("Invalid value: 'prompt is too long'"), Fault.REJECTED, "upstream_rejected"),
        (400, said("`max_tokens` must be at most 4096"), Fault.REJECTED, "upstream_rejected"),
        (413, said("Request too large on tokens per minute (TPM): Limit 6000, Requested 9000"), Fault.REJECTED,
         "upstream_rejected"),
        (503, said("the context window service is away"), Fault.OVERLOADED, "upstream_overloaded"),
    ],
)  # fmt: skip
def test_what_sounds_like_it_is_not(status: int, body: Any, kind: Fault, code: str) -> None:
    fault = fault_from_response(status, {}, json.dumps(body).encode())
    assert (fault.kind, fault.code) == (kind, code)
