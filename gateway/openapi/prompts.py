"""Embeddings and completions as types: what the OpenAPI document says of them. Nothing is read or written with these.

Null counts as absent, and fields that are not named here pass.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from gateway.openapi.chat_answers import Count, Finish, TokenCounts
from gateway.openapi.chat_requests import Label, Penalty, ProviderOptions, StreamOptions, UsageShown
from gateway.openapi.plans import Plan
from gateway.protocols.openai_chat.request.fields import MAX_CAP, MAX_STOP
from gateway.protocols.openai_chat.request.request import MAX_CHOICES
from gateway.protocols.openai_completions.request import MAX_STOPS
from gateway.protocols.openai_embeddings.vectors import MOST_NUMBERS
from gateway.protocols.prompts import MAX_PROMPTS, MAX_TOKEN

Model = Annotated[str, Meta(min_length=1, max_length=256, description="A slug of GET /v1/models, or an alias.")]
Text = Annotated[str, Meta(min_length=1)]
Token = Annotated[int, Meta(ge=0, le=MAX_TOKEN)]
Tokens = Annotated[list[Token], Meta(min_length=1)]
Prompts = (
    Text
    | Annotated[
        list[Text | Token | Tokens],
        Meta(min_length=1, description=f"At most {MAX_PROMPTS} texts, as many lists of tokens, or one list of tokens."),
    ]
)
Stop = Annotated[str, Meta(min_length=1, max_length=MAX_STOP)]


class EmbeddingsRequest(Struct, kw_only=True):
    """Texts, or tokens, of which a model makes a vector each."""

    model: Model
    input: Prompts
    dimensions: Annotated[
        Annotated[int, Meta(ge=1, le=MOST_NUMBERS)] | None,
        Meta(description="Numbers a vector; any others are a fault."),
    ] = None
    encoding_format: Annotated[
        Literal["float", "base64"] | None, Meta(description="Whichever of the two the provider has.")
    ] = None
    user: Label | None = None
    safety_identifier: Label | None = None
    provider: Annotated[
        ProviderOptions | None, Meta(description="Wishes for the route. No other model stands in for this one.")
    ] = None
    usage: Annotated[UsageShown | None, Meta(description="Whether usage tells what was charged.")] = None


class Embedding(Struct):
    """A vector: numbers, or base64 of little-endian 32-bit floats."""

    object: Literal["embedding"]
    index: Count
    embedding: list[float] | str


class PromptCounts(Struct):
    """Tokens used."""

    prompt_tokens: Count
    total_tokens: Count
    cost: Annotated[float | UnsetType, Meta(description="Dollars charged, exact; only when asked for.")] = UNSET


class EmbeddingsAnswer(Struct):
    """A vector for each input, in their order."""

    object: Literal["list"]
    model: str
    data: list[Embedding]
    usage: PromptCounts
    x_gateway_plan: Annotated[Plan | UnsetType, Meta(description="Only when `X-Gateway-Explain` asks for it.")] = UNSET


class CompletionRequest(Struct, kw_only=True):
    """A text to go on with."""

    model: Model
    prompt: Prompts
    suffix: Annotated[str | None, Meta(description="What follows the gap that is to be filled.")] = None
    max_tokens: Annotated[Annotated[int, Meta(ge=0, le=MAX_CAP)] | None, Meta(description="Of each text.")] = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    n: Annotated[Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None, Meta(description="Texts for each prompt.")] = None
    best_of: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None,
        Meta(description="Texts that are written for each prompt; all are paid for, `n` are answered."),
    ] = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    echo: Annotated[bool | None, Meta(description="Answer the prompt as well.")] = None
    stop: Stop | Annotated[list[Stop], Meta(max_length=MAX_STOPS)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    seed: Annotated[int, Meta(extra_json_schema={"format": "int64"})] | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    user: Label | None = None
    safety_identifier: Label | None = None
    prompt_cache_key: Label | None = None
    metadata: Annotated[dict[str, str] | None, Meta(description="Kept with the generation.")] = None
    provider: Annotated[ProviderOptions | None, Meta(description="Wishes for the route.")] = None
    usage: Annotated[UsageShown | None, Meta(description="Whether usage tells what was charged.")] = None


class CompletionChoice(Struct):
    """One text, or a piece of it."""

    index: Count
    text: str
    logprobs: dict[str, Any] | None
    finish_reason: Finish | None
    native_finish_reason: Annotated[str | UnsetType, Meta(description="The provider's own word, if it differs.")] = (
        UNSET
    )


class CompletionAnswer(Struct):
    """The texts, or the data of one event of their stream. The last one with usage has no choices."""

    id: Annotated[str, Meta(description="The generation's id: GET /v1/management/generation?id=…")]
    object: Literal["text_completion"]
    created: Annotated[int, Meta(description="Unix seconds.")]
    model: str
    choices: list[CompletionChoice]
    usage: TokenCounts | UnsetType | None = UNSET
    x_gateway_plan: Annotated[Plan | UnsetType, Meta(description="Only when `X-Gateway-Explain` asks for it.")] = UNSET
