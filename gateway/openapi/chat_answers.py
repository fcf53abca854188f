"""The answer of a chat completion as types: what the OpenAPI document says of it. Nothing is encoded with them.

Providers add fields of their own, which pass as they came; clients ignore those they do not know.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from gateway.openapi.plans import Plan

Count = Annotated[int, Meta(ge=0)]


class PromptTokensDetails(Struct):
    """What the prompt's tokens were."""

    cached_tokens: Count
    audio_tokens: Count
    image_tokens: Count
    text_tokens: Count
    cache_creation_input_tokens: Count
    cache_write_tokens: Count
    ephemeral_5m_input_tokens: Count
    ephemeral_1h_input_tokens: Count
    web_search: Annotated[int, Meta(ge=0, description="Searches, not tokens.")]
    video_tokens: Count | UnsetType = UNSET


class CompletionTokensDetails(Struct):
    """What the completion's tokens were."""

    reasoning_tokens: Count
    audio_tokens: Count
    text_tokens: Count
    accepted_prediction_tokens: Count
    rejected_prediction_tokens: Count
    image_tokens: Count | UnsetType = UNSET


class TokenCounts(Struct):
    """Tokens used; those of the details are inside the totals."""

    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails
    input_tokens: Annotated[int, Meta(ge=0, description="Another name of `prompt_tokens`.")]
    output_tokens: Annotated[int, Meta(ge=0, description="Another name of `completion_tokens`.")]
    cost: Annotated[float | UnsetType, Meta(description="Dollars charged, exact; only when asked for.")] = UNSET


class FunctionCall(Struct):
    """A function and its arguments. In a chunk, a further piece of them."""

    name: str | UnsetType | None = UNSET
    arguments: str | UnsetType | None = UNSET


class ToolCall(Struct):
    """A call the model wants made."""

    id: str | UnsetType | None = UNSET
    type: str | UnsetType | None = UNSET
    index: int | UnsetType = UNSET
    function: FunctionCall | UnsetType = UNSET
    custom: dict[str, Any] | UnsetType = UNSET


class AnswerMessage(Struct):
    """What the model said. Its thoughts have three names; they hold the same."""

    role: Literal["assistant"]
    content: str | None
    refusal: str | None
    annotations: list[dict[str, Any]]
    tool_calls: list[ToolCall] | UnsetType = UNSET
    function_call: FunctionCall | UnsetType | None = UNSET
    reasoning: str | UnsetType | None = UNSET
    reasoning_content: str | UnsetType | None = UNSET
    reasoning_details: list[dict[str, Any]] | UnsetType | None = UNSET
    audio: dict[str, Any] | UnsetType | None = UNSET


Finish = Literal["stop", "length", "tool_calls", "content_filter", "function_call"]


class AnswerChoice(Struct):
    """One answer."""

    index: Count
    message: AnswerMessage
    finish_reason: Finish
    logprobs: dict[str, Any] | None
    native_finish_reason: Annotated[str | UnsetType, Meta(description="The provider's own word, if it differs.")] = (
        UNSET
    )


class ChatCompletion(Struct):
    """A whole answer."""

    id: Annotated[str, Meta(description="The generation's id: GET /v1/management/generation?id=…")]
    object: Literal["chat.completion"]
    created: Annotated[int, Meta(description="Unix seconds.")]
    model: str
    choices: list[AnswerChoice]
    usage: TokenCounts
    system_fingerprint: str | UnsetType | None = UNSET
    service_tier: str | UnsetType | None = UNSET
    x_gateway_plan: Annotated[Plan | UnsetType, Meta(description="Only when `X-Gateway-Explain` asks for it.")] = UNSET


class Delta(Struct):
    """What a chunk adds to a message."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    refusal: str | UnsetType | None = UNSET
    tool_calls: list[ToolCall] | UnsetType | None = UNSET
    reasoning: str | UnsetType | None = UNSET
    reasoning_content: str | UnsetType | None = UNSET
    reasoning_details: list[dict[str, Any]] | UnsetType | None = UNSET
    annotations: list[dict[str, Any]] | UnsetType = UNSET


class ChunkChoice(Struct):
    """One answer's part of a chunk."""

    index: Count
    delta: Delta
    finish_reason: Finish | None
    native_finish_reason: str | UnsetType = UNSET
    logprobs: dict[str, Any] | UnsetType | None = UNSET


class ChatCompletionChunk(Struct):
    """The data of one event of a stream; all chunks have the same id. The last one with usage has no choices."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: Annotated[int, Meta(description="Unix seconds.")]
    model: str
    choices: list[ChunkChoice]
    usage: TokenCounts | UnsetType | None = UNSET
    x_gateway_plan: Annotated[
        Plan | UnsetType, Meta(description="Only when `X-Gateway-Explain` asks for it, in the last chunk.")
    ] = UNSET
    system_fingerprint: str | UnsetType | None = UNSET
