"""What the other protocols' requests and answers are, as types: the outlines, with what a client meets first.

Their vendors document the rest; what the gateway makes of it, docs/design.md says. Nothing is read or written with
these, and fields that are not named here pass.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from gateway.protocols.openai_chat.request.fields import MAX_CAP

Objects = list[dict[str, Any]]
Model = Annotated[str, Meta(description="A model's slug or alias.")]


class ResponsesRequest(Struct):
    """A request of OpenAI's Responses API. Nothing is kept here: `previous_response_id` is for providers that keep
    their answers, see docs/responses.md.
    """

    model: Model
    input: str | Objects
    instructions: str | None = None
    max_output_tokens: Annotated[int, Meta(ge=1, le=MAX_CAP)] | None = None
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    tools: Objects | None = None
    reasoning: dict[str, Any] | None = None
    text: Annotated[dict[str, Any], Meta(description="Its `format` asks for structured output.")] | None = None
    previous_response_id: str | None = None
    store: bool | None = None


class ResponsesAnswer(Struct):
    """A response; its items are messages, calls of tools, and thoughts."""

    id: str
    object: Literal["response"]
    created_at: int
    model: str
    output: Objects
    status: Literal["completed", "incomplete", "failed"]
    usage: dict[str, Any] | None = None


class ResponsesEvent(Struct):
    """An event of a stream; `response.completed`, or the like, is the last one."""

    type: str
    sequence_number: int | UnsetType = UNSET


class MessagesRequest(Struct):
    """A request of Anthropic's Messages API."""

    model: Model
    messages: Annotated[Objects, Meta(min_length=1)]
    max_tokens: Annotated[int, Meta(ge=0, le=MAX_CAP)]
    system: str | Objects | None = None
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    stop_sequences: list[str] | None = None
    tools: Objects | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None


class CountTokensRequest(Struct):
    """The same without a cap."""

    model: Model
    messages: Annotated[Objects, Meta(min_length=1)]
    system: str | Objects | None = None
    tools: Objects | None = None


class MessagesAnswer(Struct):
    """A message; its content are texts, calls of tools, and thoughts."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: Objects
    stop_reason: str | None
    stop_sequence: str | None
    usage: dict[str, Any]


class MessagesEvent(Struct):
    """An event of a stream; `message_stop` is the last one."""

    type: str


class TokenCount(Struct):
    """How many tokens a request has: what the provider counts, or an estimate, which says so."""

    input_tokens: Annotated[int, Meta(ge=0)]
    estimated: bool | UnsetType = UNSET


class MessagesErrorObject(Struct):
    """What went wrong; `code` and `param` are the gateway's, beside what Anthropic's clients read."""

    type: str
    message: str
    code: str | UnsetType = UNSET
    param: str | UnsetType = UNSET


class MessagesError(Struct):
    """Every refusal and failure on a path of Anthropic's."""

    type: Literal["error"]
    error: MessagesErrorObject
    request_id: str | UnsetType = UNSET


class GenerateRequest(Struct, rename="camel"):
    """A request of Google's generateContent. Names may be in snake case, too."""

    contents: Objects
    system_instruction: dict[str, Any] | None = None
    tools: Objects | None = None
    tool_config: dict[str, Any] | None = None
    generation_config: dict[str, Any] | None = None


class GenerateAnswer(Struct, rename="camel"):
    """An answer, or one event of it; its parts are texts, calls of functions, and thoughts."""

    candidates: Objects
    model_version: str
    response_id: str
    usage_metadata: dict[str, Any] | UnsetType = UNSET


class CountContentRequest(Struct, rename="camel"):
    """Contents, or a whole request."""

    contents: Objects | None = None
    generate_content_request: dict[str, Any] | None = None


class TotalTokens(Struct, rename="camel"):
    """How many tokens contents have: what the provider counts, or an estimate, which says so."""

    total_tokens: Annotated[int, Meta(ge=0)]
    estimated: bool | UnsetType = UNSET


class GoogleErrorObject(Struct):
    """What went wrong: the HTTP status, a word for it, and `details` with reason, path and delay."""

    code: int
    message: str
    status: str
    details: Objects


class GoogleError(Struct):
    """Every refusal and failure on a path of Google's."""

    error: GoogleErrorObject
