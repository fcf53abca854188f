"""The answers of the other endpoints as types: what the OpenAPI document says of them. Nothing is encoded with them.

The tests compare them with what a running gateway sends.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from gateway.files.uploads import ANCHOR, LIFETIME, PURPOSES, SECONDS
from gateway.openapi.chat_answers import Count, TokenCounts
from gateway.openapi.plans import NAMED, Plan

Dollars = Annotated[float, Meta(description="Dollars, exact.")]
UnixSeconds = Annotated[int, Meta(ge=0, description="Unix seconds.")]


class ErrorObject(Struct):
    """What went wrong, as OpenAI's clients expect it. Other dialects leave fields out or add the request's id."""

    message: str
    type: str | None
    code: str | None
    param: Annotated[str | UnsetType | None, Meta(description="The offending field, by its path.")] = UNSET
    request_id: str | UnsetType = UNSET


class Error(Struct):
    """Every refusal and failure, on every path."""

    error: ErrorObject
    x_gateway_plan: Annotated[
        Plan | UnsetType, Meta(description="Of a chat completion that asked for it, and of /v1/route.")
    ] = UNSET


class Range(Struct):
    """A size, in thousands (1000) of tokens; a bound that is left out is none."""

    unit: Literal["kTokens"]
    gte: Annotated[float | UnsetType, Meta(description="This size or more.")] = UNSET
    gt: Annotated[float | UnsetType, Meta(description="More than this size.")] = UNSET
    lte: Annotated[float | UnsetType, Meta(description="This size or less.")] = UNSET
    lt: Annotated[float | UnsetType, Meta(description="Less than this size.")] = UNSET
    marginal: Annotated[
        bool | UnsetType,
        Meta(description="True: of a prompt's tokens it is for those in this range; else for all, the answer's too."),
    ] = UNSET


class Conditions(Struct):
    """Which requests a price is for."""

    prompt_tokens: (
        Annotated[Range, Meta(description="The size of the whole prompt, cached tokens included.")] | UnsetType
    ) = UNSET
    service_tier: Annotated[str, Meta(description="The class of service that was served.")] | UnsetType = UNSET


class Price(Struct):
    """One price of an item. Without conditions it is for every request."""

    value: Annotated[float, Meta(ge=0, description="Exact.")]
    unit: Literal["perMTokens", "perCount", "perSecond"]
    currency: Literal["USD"]
    conditions: Conditions | UnsetType = UNSET


class ModelFacts(Struct, kw_only=True):
    """What is known of a model; limits are tokens, null when not known."""

    display_name: str
    aliases: list[str]
    input_modalities: list[str]
    output_modalities: list[str]
    capabilities: dict[str, bool]
    context_length: int | None
    max_output: int | None
    max_completion_tokens: int | None
    supported_parameters: list[str]
    supported_endpoint_types: list[str]
    pricings: dict[str, list[Price]]


class Model(ModelFacts, kw_only=True):
    """A model, in OpenAI's shape."""

    id: str
    object: Literal["model"]
    created: UnixSeconds
    owned_by: str


class ModelList(Struct):
    """Models, in OpenAI's shape."""

    object: Literal["list"]
    data: list[Model]


class AnthropicModel(ModelFacts, kw_only=True):
    """A model, in Anthropic's shape."""

    id: str
    type: Literal["model"]
    created_at: Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


class AnthropicModelList(Struct):
    """Models, in Anthropic's shape."""

    data: list[AnthropicModel]
    has_more: bool
    first_id: str | None
    last_id: str | None


class GoogleModel(Struct):
    """A model, in Google's shape."""

    name: str
    displayName: str
    description: str
    inputTokenLimit: int | None
    outputTokenLimit: int | None
    thinking: bool
    inputModalities: list[str]
    outputModalities: list[str]
    supportedParameters: list[str]
    pricings: dict[str, list[Price]]


class GoogleModelList(Struct):
    """Models, in Google's shape."""

    models: list[GoogleModel]
    nextPageToken: str | None


class BillLine(Struct):
    """One line of a bill: bill = origin - discount."""

    feeItemCode: str
    quantity: Count
    rate: float | None
    originAmount: float | None
    discountAmount: float | None
    billAmount: float | None


class Bill(Struct):
    """What a generation costs; amounts are dollars, null with an unknown price."""

    originAmount: float | None
    discountAmount: float | None
    billAmount: float | None
    priceVersion: str | None
    ratingDetails: list[BillLine]


class Attempt(Struct):
    """One dial of a provider; times are milliseconds."""

    number: int
    status: str
    fault: str | None
    duration: int | None
    ttft: int | None
    model: str | None
    provider: Annotated[str | UnsetType, Meta(description=NAMED)] = UNSET
    endpoint: Annotated[str | UnsetType, Meta(description=NAMED)] = UNSET


class Generation(Struct):
    """A settled generation; times are milliseconds."""

    id: str
    object: Literal["generation"]
    model: str
    created_at: Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
    stream: bool
    finishReason: str | None
    nativeFinishReason: str | None
    latency: int | None
    generationTime: int | None
    nativeTokens: TokenCounts
    usage: Annotated[float | None, Meta(description="Dollars charged.")]
    ratingResponses: Bill
    requestRetryTimes: Count
    attempts: list[Attempt]
    metadata: dict[str, Any] | None
    app: str | None
    x_gateway_plan: Plan | None


class RouteAnswer(Struct):
    """Where a chat completion would go."""

    object: Literal["route"]
    x_gateway_plan: Plan


class BalanceData(Struct):
    """What is left; null without a prepaid balance and a budget in total."""

    currency: Literal["usd"]
    total_credits: float | None
    top_up_credits: float | None
    bonus_credits: float | None
    held_credits: float | None


class BalanceAnswer(Struct):
    """The organization's balance."""

    success: Literal[True]
    data: BalanceData


class UsageEntry(Struct):
    """What one group used."""

    requests: Count
    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    cached_tokens: Count
    reasoning_tokens: Count
    cost: Dollars
    unpriced_requests: Count
    date: str | UnsetType = UNSET
    model: str | UnsetType = UNSET


class UsageData(Struct):
    """The groups of a span of UTC days, both inclusive."""

    currency: Literal["usd"]
    starting_at: Annotated[str, Meta(extra_json_schema={"format": "date"})]
    ending_at: Annotated[str, Meta(extra_json_schema={"format": "date"})]
    group_by: list[str]
    entries: list[UsageEntry]


class UsageAnswer(Struct):
    """What the organization used."""

    success: Literal[True]
    data: UsageData


class StatementLine(Struct):
    """What a model was used for, or a note, and what of the total that is."""

    charge: Dollars
    model: str | UnsetType = UNSET
    note: str | UnsetType = UNSET
    requests: Count | UnsetType = UNSET
    prompt_tokens: Count | UnsetType = UNSET
    completion_tokens: Count | UnsetType = UNSET
    images: Count | UnsetType = UNSET
    seconds: Count | UnsetType = UNSET
    web_searches: Count | UnsetType = UNSET


class StatementAnswer(Struct):
    """A numbered statement of a month, or a credit note, which takes of one."""

    object: Literal["statement"]
    number: str
    kind: Literal["statement", "credit"]
    refers_to: Annotated[str | None, Meta(description="Of a credit note: the statement's number.")]
    issuer: str
    organization: str
    name: str
    month: Annotated[str, Meta(pattern="^[0-9]{4}-[0-9]{2}$")]
    currency: str
    total: Annotated[float, Meta(description="Exact; below 0 of a credit note.")]
    reason: str
    issued_at: Annotated[int, Meta(description="Unix seconds.")]
    lines: list[StatementLine]


class StatementList(Struct):
    """Some of the organization's documents, the newest first."""

    object: Literal["list"]
    data: list[StatementAnswer]
    has_more: bool


class QuotaData(Struct):
    """What the calling key may still spend, in dollars."""

    object: Literal["token_usage"]
    name: str
    total_granted: Dollars
    total_used: float | None
    total_available: Dollars
    total_held: Dollars
    currency: Literal["usd"]
    period: Literal["total", "month", "week", "day"] | None
    unlimited_quota: bool
    model_limits: dict[str, bool]
    model_limits_enabled: bool
    expires_at: Annotated[int, Meta(description="Unix seconds; 0: never.")]


class QuotaAnswer(Struct):
    """The calling key's quota."""

    code: Literal[True]
    message: str
    data: QuotaData


class UploadForm(Struct, rename={"anchor": ANCHOR, "seconds": SECONDS}):
    """The fields of an upload, in any order."""

    file: Annotated[str, Meta(extra_json_schema={"format": "binary"})]
    purpose: Annotated[str, Meta(extra_json_schema={"enum": list(PURPOSES)})]
    anchor: Annotated[Literal["created_at"] | UnsetType, Meta(description="With the seconds.")] = UNSET
    seconds: Annotated[
        Annotated[int, Meta(ge=LIFETIME.start, le=LIFETIME.stop - 1)] | UnsetType,
        Meta(description="How long it is kept."),
    ] = UNSET


class File(Struct):
    """What is known of an uploaded file."""

    id: Annotated[str, Meta(pattern="^file-[0-9a-f]{32}$")]
    object: Literal["file"]
    bytes: Annotated[int, Meta(ge=1)]
    created_at: UnixSeconds
    filename: str
    purpose: str
    status: Literal["processed"]
    status_details: None
    expires_at: int | None


class FilePage(Struct):
    """Some of a project's files."""

    object: Literal["list"]
    data: list[File]
    first_id: str | None
    last_id: str | None
    has_more: bool


class FileDeleted(Struct):
    """A file is gone."""

    id: str
    object: Literal["file"]
    deleted: Literal[True]


class HealthAnswer(Struct):
    """The process answers."""

    status: Literal["ok"]


class ReadyAnswer(Struct):
    """Whether the process takes paid work, and what is missing if it does not."""

    status: Literal["ready", "unready"]
    missing: list[Literal["configuration", "database", "disk"]]
    configuration: int
    spooled: Count
