"""The request of a chat completion as types: what the OpenAPI document says of it. Nothing is decoded with them.

`parse` checks a request by hand, since its refusals have an order, codes and wordings of their own. So that the two do
not drift apart the limits here are the checks' own constants, and tests hold every field, limit and word against
`parse`. Ranges are the standard dialect's. Null counts as absent, and fields that are not named here pass.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from gateway.openapi.chat_messages import CacheControl, Message, words
from gateway.protocols.openai_chat.request.checks import MAX_LABEL, is_name
from gateway.protocols.openai_chat.request.fields import MAX_CAP, MAX_KEY, MAX_PAIRS, MAX_STOP
from gateway.protocols.openai_chat.request.messages import MAX_MESSAGES
from gateway.protocols.openai_chat.request.reasoning import EFFORTS, MAX_BUDGET
from gateway.protocols.openai_chat.request.request import MAX_CHOICES
from gateway.protocols.openai_chat.request.routing_fields import FACTORS, MAX_NAMES, STRATEGIES
from gateway.protocols.openai_chat.request.tools import MAX_TOOLS
from gateway.wire.dialects import STANDARD

Name = Annotated[str, Meta(pattern=f"^{is_name.__self__.pattern}$")]
Label = Annotated[str, Meta(max_length=MAX_LABEL)]
ProviderName = Annotated[str, Meta(min_length=1, max_length=256)]
Effort = Annotated[str, words(EFFORTS)]
Cap = Annotated[int, Meta(ge=1, le=MAX_CAP)]
Budget = Annotated[int, Meta(ge=1, le=MAX_BUDGET)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]


class Function(Struct):
    """A function a model may call."""

    name: Name
    description: str | None = None
    parameters: Annotated[dict[str, Any], Meta(description="A JSON Schema of the arguments.")] | None = None
    strict: bool | None = None


class CustomTool(Struct):
    """A tool whose input is free text."""

    name: Name
    description: str | None = None
    format: dict[str, Any] | None = None


class FunctionTool(Struct, tag_field="type", tag="function"):
    """A tool that is a function."""

    function: Function
    cache_control: CacheControl | None = None


class CustomToolOffer(Struct, tag_field="type", tag="custom"):
    """A tool that takes text."""

    custom: CustomTool
    cache_control: CacheControl | None = None


class ResponseSchema(Struct):
    """The form an answer must have."""

    name: Name
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None


class ResponseText(Struct, tag_field="type", tag="text"):
    """Free text."""


class ResponseObject(Struct, tag_field="type", tag="json_object"):
    """Some JSON object."""


class ResponseJson(Struct, tag_field="type", tag="json_schema"):
    """JSON of this form."""

    json_schema: ResponseSchema


class UsageShown(Struct):
    """Whether usage, and what it cost, is shown."""

    include: bool


class ReasoningOptions(Struct):
    """How much the model is to think."""

    enabled: bool | None = None
    effort: Effort | None = None
    max_tokens: Budget | None = None
    exclude: Annotated[bool, Meta(description="Think, but do not show it.")] | None = None
    usage: UsageShown | None = None


class Thinking(Struct):
    """How much the model is to think, in Anthropic's words."""

    type: Literal["enabled", "disabled"] | None = None
    budget_tokens: Budget | None = None


class StreamOptions(Struct):
    """Only with `stream`."""

    include_usage: Annotated[bool, Meta(description="End the stream with a chunk that holds the usage.")] | None = None
    include_obfuscation: bool | None = None


class Place(Struct):
    """Roughly where the user is."""

    city: str | None = None
    country: str | None = None
    region: str | None = None
    timezone: str | None = None


class UserLocation(Place, kw_only=True):
    """Where the user is; the place may stand in `approximate` or beside it."""

    type: Literal["approximate"]
    approximate: Place | None = None


class WebSearchOptions(Struct):
    """How to search the web."""

    search_context_size: Literal["low", "medium", "high"] | None = None
    user_location: UserLocation | None = None


class RoutingRule(Struct):
    """In which order a model's providers are tried."""

    type: Annotated[str, words(STRATEGIES)] | None = None
    primary_factor: Annotated[str, words(FACTORS)] | None = None
    providers: (
        Annotated[list[ProviderName], Meta(min_length=1, max_length=MAX_NAMES, description="`provider` slugs.")] | None
    ) = None


class ProviderOptions(Struct):
    """Wishes for the route."""

    routing: RoutingRule | None = None
    fallback: (
        Annotated[bool | ProviderName, Meta(description="Whether others may follow, or the one to fall back to.")]
        | None
    ) = None


class TaskInfo(Struct):
    """What is asked of the model."""

    task_type: Label
    complexity: Literal["low", "medium", "high"] | None = None
    additional_properties: dict[str, Any] | None = None


class ModelRoutingConfig(Struct):
    """Wishes for the choice of a model."""

    available_models: Annotated[list[ProviderName], Meta(min_length=1, max_length=MAX_NAMES)] | None = None
    preference: (
        Annotated[str, Meta(min_length=1, max_length=256, description="`balanced`, `performance`, `price`, or a model")]
        | None
    ) = None
    task_info: TaskInfo | None = None
    additional_properties: dict[str, Any] | None = None


class ChatCompletionRequest(Struct, kw_only=True):
    """What a client asks for. Null counts as absent. A field that is not named here is passed on to the provider."""

    model: Annotated[str, Meta(min_length=1, max_length=256, description="A slug of GET /v1/models, or an alias.")]
    messages: Annotated[list[Message], Meta(min_length=1, max_length=MAX_MESSAGES, description="The conversation.")]
    stream: Annotated[bool | None, Meta(description="Answer with server-sent events.")] = None
    stream_options: Annotated[StreamOptions | None, Meta(description="Only with `stream`.")] = None
    max_completion_tokens: Annotated[
        Cap | None, Meta(description="Most tokens of the answer, thoughts included. Wins over `max_tokens`.")
    ] = None
    max_tokens: Annotated[Cap | None, Meta(description="The older name of `max_completion_tokens`.")] = None
    temperature: Annotated[
        Annotated[float, Meta(ge=0, le=STANDARD.max_temperature)] | None, Meta(description="Randomness.")
    ] = None
    top_p: Annotated[Annotated[float, Meta(ge=0, le=1)] | None, Meta(description="Nucleus sampling.")] = None
    frequency_penalty: Annotated[Penalty | None, Meta(description="Against words that came often.")] = None
    presence_penalty: Annotated[Penalty | None, Meta(description="Against words that came at all.")] = None
    n: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None, Meta(description="How many answers; each is paid for.")
    ] = None
    stop: Annotated[
        Annotated[str, Meta(min_length=1, max_length=MAX_STOP)]
        | Annotated[list[Annotated[str, Meta(min_length=1, max_length=MAX_STOP)]], Meta(max_length=STANDARD.max_stops)]
        | None,
        Meta(description="Where to stop. What a provider does not take the gateway looks for itself."),
    ] = None
    seed: Annotated[
        Annotated[int, Meta(extra_json_schema={"format": "int64"})] | None, Meta(description="For repeatable answers.")
    ] = None
    logit_bias: Annotated[
        dict[str, Annotated[float, Meta(ge=-100, le=100)]] | None, Meta(description="Biases by token id.")
    ] = None
    logprobs: Annotated[bool | None, Meta(description="Show log probabilities.")] = None
    top_logprobs: Annotated[
        Annotated[int, Meta(ge=0, le=20)] | None, Meta(description="Alternatives of each token; needs `logprobs`.")
    ] = None
    tools: Annotated[
        Annotated[list[FunctionTool | CustomToolOffer], Meta(max_length=MAX_TOOLS)] | None,
        Meta(description="What the model may call."),
    ] = None
    tool_choice: Annotated[
        Literal["none", "auto", "required"] | dict[str, Any] | None,
        Meta(description="How to choose: a word, a tool of `tools`, or `allowed_tools` with a mode and tools."),
    ] = None
    parallel_tool_calls: Annotated[bool | None, Meta(description="Whether several calls may be made at once.")] = None
    functions: Annotated[
        Annotated[list[Function], Meta(max_length=MAX_TOOLS)] | None,
        Meta(description="The older form of `tools`.", extra_json_schema={"deprecated": True}),
    ] = None
    function_call: Annotated[
        Literal["none", "auto"] | dict[str, Any] | None,
        Meta(description="The older form of `tool_choice`.", extra_json_schema={"deprecated": True}),
    ] = None
    response_format: Annotated[
        ResponseText | ResponseObject | ResponseJson | None, Meta(description="The form of the answer.")
    ] = None
    reasoning: Annotated[
        ReasoningOptions | None, Meta(description="How much to think. Wins over the two other spellings.")
    ] = None
    reasoning_effort: Annotated[Effort | None, Meta(description="How much to think.")] = None
    thinking: Annotated[Thinking | None, Meta(description="How much to think.")] = None
    include_reasoning: Annotated[bool | None, Meta(description="False hides the thoughts.")] = None
    verbosity: Annotated[Literal["low", "medium", "high"] | None, Meta(description="How long an answer to give.")] = (
        None
    )
    usage: Annotated[UsageShown | None, Meta(description="Show the usage with its cost.")] = None
    modalities: Annotated[list[str] | None, Meta(description="What to answer with, such as text and audio.")] = None
    audio: Annotated[dict[str, Any] | None, Meta(description="Voice and format of a spoken answer.")] = None
    prediction: Annotated[dict[str, Any] | None, Meta(description="What the answer is likely to hold.")] = None
    web_search_options: Annotated[WebSearchOptions | None, Meta(description="Search the web.")] = None
    provider: Annotated[
        ProviderOptions | None, Meta(description="Which providers to try, in which order. Not passed on.")
    ] = None
    model_routing_config: Annotated[
        ModelRoutingConfig | None, Meta(description="Which models to choose from. Not passed on.")
    ] = None
    metadata: Annotated[
        Annotated[
            dict[Annotated[str, Meta(max_length=MAX_KEY)], Annotated[str, Meta(max_length=MAX_LABEL)]],
            Meta(max_length=MAX_PAIRS),
        ]
        | None,
        Meta(description="Labels of your own, kept with the generation."),
    ] = None
    user: Annotated[Label | None, Meta(description="Whom you act for; kept with the generation.")] = None
    user_id: Annotated[
        Annotated[str, Meta(max_length=MAX_LABEL, pattern="^[a-zA-Z0-9_-]*$")] | None,
        Meta(description="As `user`."),
    ] = None
    safety_identifier: Annotated[Label | None, Meta(description="As `user`.")] = None
    prompt_cache_key: Annotated[Label | None, Meta(description="Which requests share a cache.")] = None
    prompt_cache_retention: Annotated[Label | None, Meta(description="How long a cache is kept.")] = None
    service_tier: Annotated[Label | None, Meta(description="The provider's tier.")] = None
    store: Annotated[bool | None, Meta(description="Whether the provider keeps the answer.")] = None
