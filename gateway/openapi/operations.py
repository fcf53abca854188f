"""What the code of a view does not say of itself: its parameters, its answers' types, and how it can fail.

`OPERATIONS` has a row for each method of each view, by their names. The document cannot be made without a route's row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from billing.exports.pages import FORMATS, LAYOUTS
from gateway.endpoints.exports import SPENT_BY
from gateway.endpoints.files import MOST_LISTED
from gateway.endpoints.idempotency import MOST_CHARACTERS
from gateway.endpoints.model_lists import ANTHROPIC, GOOGLE, Shape
from gateway.endpoints.performance import METRICS
from gateway.endpoints.statements import FORMATS as STATEMENT_FORMATS
from gateway.endpoints.statements import MOST_LISTED as MOST_STATEMENTS
from gateway.endpoints.statistics import MOST_LIMIT, USAGE_METRICS, WIDTHS
from gateway.openapi.answers import (
    AnthropicModel,
    AnthropicModelList,
    BalanceAnswer,
    File,
    FileDeleted,
    FilePage,
    Generation,
    GoogleModel,
    GoogleModelList,
    HealthAnswer,
    Model,
    ModelList,
    QuotaAnswer,
    ReadyAnswer,
    RouteAnswer,
    StatementAnswer,
    StatementList,
    UploadForm,
    UsageAnswer,
)
from gateway.openapi.chat_answers import ChatCompletion, ChatCompletionChunk
from gateway.openapi.chat_requests import ChatCompletionRequest
from gateway.openapi.prompts import CompletionAnswer, CompletionRequest, EmbeddingsAnswer, EmbeddingsRequest
from gateway.openapi.protocols import (
    CountContentRequest,
    CountTokensRequest,
    GenerateAnswer,
    GenerateRequest,
    MessagesAnswer,
    MessagesEvent,
    MessagesRequest,
    ResponsesAnswer,
    ResponsesEvent,
    ResponsesRequest,
    TokenCount,
    TotalTokens,
)
from gateway.openapi.statistics import (
    LeaderboardAnswer,
    MarketShareAnswer,
    ModelUsageAnswer,
    PerformanceAnswer,
    TimeseriesAnswer,
    TrendingAnswer,
)
from gateway.wire.errors import (
    SHOWN,
    BodyTooLarge,
    Conflict,
    Forbidden,
    GatewayError,
    HeadersTooLarge,
    InsufficientCredit,
    InvalidRequest,
    NotFound,
    RateLimited,
    TooManyReads,
    Unauthenticated,
    Unavailable,
    UnsupportedMediaType,
    UpstreamFault,
)
from routing.health.faults import Fault as F

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the query, or a header. `sample` is for the curl line."""

    name: str
    schema: Schema
    description: str
    sample: str = ""
    place: str = "query"
    required: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of a view.

    - `title`: what it does, in a few words
    - `answers`: types of the 200's JSON, any of them; `by_shape`: instead of them where a route has that shape
    - `media`: the 200's media type if it is not JSON; `media_too`: others that may be asked for
    - `statuses`: further answers, their descriptions and types
    - `headers`: of the 200, with their descriptions; those that end with `?` are not always there
    - `errors`: one of each kind that it may end with, besides those of every call
    - `body`, `body_media`: the request's type; `sample`: its example
    - `names`: samples for the path's parameters
    """

    tag: str
    title: str
    answers: tuple[type, ...] = ()
    by_shape: Mapping[Shape, tuple[type, ...]] = field(default_factory=dict)
    media: str = "application/json"
    media_too: tuple[str, ...] = ()
    statuses: Mapping[int, tuple[str, type | None]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    errors: tuple[GatewayError, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    body: type | None = None
    body_media: str = "application/json"
    sample: Mapping[str, Any] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    stream: type | None = None
    about: str = ""


CHAT, MODELS, BOOKS, FILES, SERVICE = "Chat", "Models", "Usage and money", "Files", "Service"
TAGS = {
    CHAT: "Ask a model. Every answer is accounted for, token by token.",
    MODELS: "What the key may call, in the shapes of three vendors' clients.",
    BOOKS: "What was used, what it cost and what is left. Amounts are exact; days are UTC.",
    FILES: "Files to name in requests. They belong to the key's project, sealed.",
    SERVICE: "For probes, monitors and machines. No key is needed.",
}

# What any call with a key may end with, before its view runs or because something of ours is away.
KEYED: tuple[GatewayError, ...] = (
    *(InvalidRequest(""), Unauthenticated(""), Forbidden(""), BodyTooLarge(""), HeadersTooLarge("")),
    *(RateLimited(""), Unavailable(""), GatewayError("")),
)
NO_MODEL = NotFound("", code="model_not_found")
CHAT_ERRORS: tuple[GatewayError, ...] = (
    *(InsufficientCredit(""), InsufficientCredit("", code="unknown_price"), NO_MODEL, RateLimited("")),
    *(InvalidRequest("", code="token_limit_too_low"), UnsupportedMediaType("")),
    InvalidRequest("", code="invalid_idempotency_key"),
    *(Conflict("", code=code) for code in ("idempotency_key_in_use", "idempotency_key_reused")),
    *(Conflict("", code="idempotency_answer_not_kept"), RateLimited("", code="idempotency_storage_full")),
    RateLimited("", code="too_many_end_users"),
    *(UpstreamFault(kind) for kind in SHOWN),
    *(UpstreamFault(F.REJECTED, upstream_status=status) for status in (413, 422)),
    *(UpstreamFault(F.REJECTED, code=code) for code in ("context_length_exceeded", "content_filter")),
    UpstreamFault(F.UNREACHABLE, code="no_provider_available"),
)
OTHER_ERRORS = (*CHAT_ERRORS, NotFound("", code="model_not_supported"))
ROUTE_ERRORS: tuple[GatewayError, ...] = (
    NO_MODEL,
    UnsupportedMediaType(""),
    Forbidden("", code="request_too_expensive"),
    UpstreamFault(F.RATE_LIMITED),
    UpstreamFault(F.UNREACHABLE, code="no_provider_available"),
)

ID = Parameter("id", {"type": "string"}, "The generation's id: an answer's `id` or x-generation-id.", "$GENERATION")
GENERATE_ID = Parameter("generate_id", {"type": "string"}, "Another name of `id`.")
ANTHROPIC_VERSION = Parameter(
    "anthropic-version", {"type": "string"}, "With any value the answer has Anthropic's shape.", place="header"
)
EXPLAIN = Parameter(
    "x-gateway-explain",
    {"type": "string", "enum": ["0", "1"]},
    "`1`: the answer, its last chunk or its error says in `x_gateway_plan` where the request could go and why.",
    place="header",
)
NAMES = Parameter(
    "x-gateway-explain",
    {"type": "string", "enum": ["0", "1"]},
    "`1`: the plan and the attempts name providers.",
    place="header",
)
HELLO: Mapping[str, Any] = {"model": "demo/swift", "messages": [{"role": "user", "content": "Say hello."}]}
KNOWN_TAG = Parameter(
    "if-none-match", {"type": "string"}, "An ETag; 304 if the answer is still the same.", place="header"
)
TITLE = Parameter("X-Title", {"type": "string"}, "The calling application; kept with the generation.", place="header")
REFERER = Parameter("HTTP-Referer", {"type": "string"}, "Its address, kept when it has no title.", place="header")
# For clients that cannot add fields to a body; a body's `provider` wins.
WISHES = (
    Parameter(
        "x-gateway-routing",
        {"type": "string", "enum": ["priority", "order", "specified_providers", "round_robin", "least_latency"]},
        "As `provider.routing.type`.",
        place="header",
    ),
    Parameter(
        "x-gateway-factor",
        {"type": "string", "enum": ["cost", "price", "speed", "latency", "throughput", "quality"]},
        "As `provider.routing.primary_factor`.",
        place="header",
    ),
    Parameter(
        "x-gateway-providers",
        {"type": "string"},
        "As `provider.routing.providers`, separated by commas.",
        place="header",
    ),
    Parameter(
        "x-gateway-fallback",
        {"type": "string"},
        "As `provider.fallback`: `true`, `false`, or the name of a provider or model.",
        place="header",
    ),
)
DAY: Schema = {"type": "string", "format": "date"}
METRIC = Parameter(
    "metric", {"type": "string", "enum": list(USAGE_METRICS)}, "What is counted.", "tokens", required=True
)
WIDTH = Parameter("bucket_width", {"type": "string", "enum": list(WIDTHS)}, "A day or a week.", "1d", required=True)
TOP = Parameter("limit", {"type": "integer", "minimum": 1, "maximum": MOST_LIMIT}, "How many are told apart; 10.", "10")
FIRST_DAY = Parameter("starting_at", DAY, "The first UTC day.", "2026-01-01")
LAST_DAY = Parameter("ending_at", DAY, "The last UTC day.", "2026-01-30")
PAST = tuple(replace(parameter, required=True) for parameter in (FIRST_DAY, LAST_DAY))
FILE_NAME = {"name": "$FILE"}
ETAG = {"ETag": "Of the body, strong."}
UNCHANGED: Mapping[int, tuple[str, type | None]] = {304: ("The answer of this ETag is still right.", None)}
NO_FILE = (NotFound("", code="file_not_found"),)
OFTEN = TooManyReads("")
GENERATED: Mapping[str, str] = {
    "x-generation-id": "The generation's id, for its cost.",
    "idempotent-replayed?": "`true`: this was told before, to a request with the same Idempotency-Key.",
    "x-gateway-budget-remaining?": "Dollars that the hard budget with the least left had before this request, exact. "
    "Absent: no hard budget binds the key.",
    "X-Gateway-Ignored-Params?": "Parameters that the chosen model does not take.",
}
ONCE = Parameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": MOST_CHARACTERS},
    "Sent again with the same one, within 24 hours, a request is answered and charged once: with the same status and "
    "bytes, also if the provider failed or the client left. 409 with Retry-After while it is being answered, and "
    "without for another body. What was refused before the provider was asked is asked anew.",
    place="header",
)
GENERATING = (TITLE, REFERER, EXPLAIN, *WISHES, ONCE)
COUNT_ERRORS: tuple[GatewayError, ...] = (NO_MODEL, UnsupportedMediaType(""))
SAID = [{"role": "user", "parts": [{"text": "Say hello."}]}]
ASKED = {"model": "demo/swift", "max_tokens": 100, "messages": HELLO["messages"]}
ANY_PROVIDER = "Whatever protocol the provider speaks: the answer is told in this one."

OPERATIONS: Mapping[str, Operation] = {
    "ChatCompletions.post": Operation(
        CHAT,
        "Ask a model",
        answers=(ChatCompletion,),
        stream=ChatCompletionChunk,
        headers=GENERATED,
        errors=CHAT_ERRORS,
        parameters=GENERATING,
        body=ChatCompletionRequest,
        sample=HELLO,
        about="With `stream` the answer is `text/event-stream`: each event's data is a chunk, the last one `[DONE]`. "
        "Lines that begin with a colon keep the connection alive. A failure after the first chunk is an event with "
        "an `error` object. The ranges here are the standard dialect's; a key's dialect may narrow or widen a few.",
    ),
    "Completions.post": Operation(
        CHAT,
        "Go on with a text, or fill a gap in it",
        answers=(CompletionAnswer,),
        stream=CompletionAnswer,
        headers=GENERATED,
        errors=OTHER_ERRORS,
        parameters=GENERATING,
        body=CompletionRequest,
        sample={"model": "demo/swift", "prompt": "def add(a, b):", "suffix": "\n", "max_tokens": 50},
        about="Only providers whose offers are known to have it are asked. Streams are as a chat's.",
    ),
    "Embeddings.post": Operation(
        CHAT,
        "Make vectors of texts",
        answers=(EmbeddingsAnswer,),
        headers=GENERATED,
        errors=OTHER_ERRORS,
        parameters=GENERATING,
        body=EmbeddingsRequest,
        sample={"model": "demo/vectors", "input": ["Say hello.", "Say goodbye."]},
        about="For models that make embeddings. Another provider of the model may answer, another model never does.",
    ),
    "Responses.post": Operation(
        CHAT,
        "Ask a model, as OpenAI's Responses API",
        answers=(ResponsesAnswer,),
        stream=ResponsesEvent,
        headers=GENERATED,
        errors=CHAT_ERRORS,
        parameters=GENERATING,
        body=ResponsesRequest,
        sample={"model": "demo/swift", "input": "Say hello."},
        about=ANY_PROVIDER,
    ),
    "Messages.post": Operation(
        CHAT,
        "Ask a model, as Anthropic's Messages API",
        answers=(MessagesAnswer,),
        stream=MessagesEvent,
        headers=GENERATED,
        errors=CHAT_ERRORS,
        parameters=GENERATING,
        body=MessagesRequest,
        sample=ASKED,
        about=ANY_PROVIDER,
    ),
    "CountTokens.post": Operation(
        CHAT,
        "Count the tokens of a message",
        answers=(TokenCount,),
        errors=COUNT_ERRORS,
        body=CountTokensRequest,
        sample={name: ASKED[name] for name in ("model", "messages")},
    ),
    "GenerateContent.post": Operation(
        CHAT,
        "Ask a model, as Google's generateContent",
        answers=(GenerateAnswer,),
        headers=GENERATED,
        errors=CHAT_ERRORS,
        parameters=GENERATING,
        body=GenerateRequest,
        sample={"contents": SAID},
        names={"name": "demo/swift"},
        about=ANY_PROVIDER,
    ),
    "StreamGenerateContent.post": Operation(
        CHAT,
        "Ask a model for a stream, as Google's streamGenerateContent",
        answers=(list,),
        stream=GenerateAnswer,
        headers=GENERATED,
        errors=CHAT_ERRORS,
        parameters=(
            Parameter("alt", {"type": "string", "enum": ["sse", "json"]}, "`sse`: events; else one array.", "sse"),
            *GENERATING,
        ),
        body=GenerateRequest,
        sample={"contents": SAID},
        names={"name": "demo/swift"},
        about=ANY_PROVIDER,
    ),
    "CountContent.post": Operation(
        CHAT,
        "Count the tokens of contents",
        answers=(TotalTokens,),
        errors=COUNT_ERRORS,
        body=CountContentRequest,
        sample={"contents": SAID},
        names={"name": "demo/swift"},
    ),
    "Route.post": Operation(
        CHAT,
        "See where a chat completion would go",
        answers=(RouteAnswer,),
        errors=ROUTE_ERRORS,
        body=ChatCompletionRequest,
        sample=HELLO,
        about="The body of a chat completion, checked like one. Nothing is dialled, held or billed. Providers are "
        "named by their slugs. With a policy in turn or by speed the next request may go elsewhere.",
    ),
    "Models.get": Operation(
        MODELS,
        "List the models this key may use",
        answers=(ModelList, AnthropicModelList),
        by_shape={ANTHROPIC: (AnthropicModelList,), GOOGLE: (GoogleModelList,)},
        headers=ETAG,
        statuses=UNCHANGED,
        parameters=(ANTHROPIC_VERSION, KNOWN_TAG),
    ),
    "OneModel.get": Operation(
        MODELS,
        "Get one model",
        answers=(Model, AnthropicModel),
        by_shape={ANTHROPIC: (AnthropicModel,), GOOGLE: (GoogleModel,)},
        headers=ETAG,
        statuses=UNCHANGED,
        errors=(NO_MODEL,),
        parameters=(ANTHROPIC_VERSION, KNOWN_TAG),
        names={"name": "demo/swift"},
    ),
    "Generations.get": Operation(
        BOOKS,
        "Get what a generation used and cost",
        answers=(Generation,),
        errors=(NotFound("", code="generation_not_found"), OFTEN),
        parameters=(ID, GENERATE_ID, NAMES),
    ),
    "Balance.get": Operation(BOOKS, "Get the organization's balance", answers=(BalanceAnswer,), errors=(OFTEN,)),
    "UsageReport.get": Operation(
        BOOKS,
        "Get usage by day and model",
        answers=(UsageAnswer,),
        errors=(OFTEN,),
        parameters=(
            Parameter("starting_at", DAY, "The first UTC day.", "2026-01-01"),
            Parameter("ending_at", DAY, "The last UTC day; at most 31 in all.", "2026-01-31"),
            Parameter(
                "group_by", {"type": "string", "enum": ["day", "model", "day,model", "model,day"]}, "The rows.", "model"
            ),
        ),
    ),
    "GenerationsExport.get": Operation(
        BOOKS,
        "Get generations as a file",
        media="text/csv",
        media_too=tuple(format.media for format in FORMATS.values() if not format.is_text),
        headers={"Content-Disposition": "The file's name.", "Content-Encoding?": "`gzip`, for who takes it."},
        errors=(OFTEN,),
        parameters=(
            Parameter("starting_at", DAY, "The first UTC day; by default the first of its month.", "2026-01-01"),
            Parameter("ending_at", DAY, "The last UTC day; at most 366 in all; by default today.", "2026-01-31"),
            Parameter(
                "layout",
                {"type": "string", "enum": list(LAYOUTS)},
                "The columns: a row a generation, by default, or FOCUS with a row for each item that is charged.",
                "focus-1.2",
            ),
            Parameter("format", {"type": "string", "enum": list(FORMATS)}, "By default `csv`.", "csv"),
            Parameter("after", {"type": "string"}, "Of a CSV file that broke off, the last generation that is whole."),
        ),
        about="CSV as RFC 4180 has it, in UTF-8, oldest first. With `after` there is no header. A text that a "
        "spreadsheet would take for a formula begins with an apostrophe. XLSX has amounts as numbers, of which a "
        "spreadsheet keeps 15 digits; CSV and Parquet are exact. It is made as it is read; an answer that breaks off "
        "has no end, of its chunks and of its gzip stream.",
    ),
    "SpendExport.get": Operation(
        BOOKS,
        "Get what was spent as a file",
        media="text/csv",
        media_too=tuple(format.media for format in FORMATS.values() if not format.is_text),
        headers={"Content-Disposition": "The file's name."},
        errors=(OFTEN,),
        parameters=(
            Parameter("starting_at", DAY, "The first UTC day; by default the first of its month.", "2026-01-01"),
            Parameter(
                "ending_at",
                DAY,
                "The last UTC day; at most 366 in all, 93 by end user or tag; by default today.",
                "2026-01-31",
            ),
            Parameter(
                "by",
                {"type": "string"},
                f"Some of {', '.join(SPENT_BY)}, with commas between; of the last two one. By default `model`.",
                "month,model",
            ),
            Parameter("tag", {"type": "string"}, "For `by=tag`: the key of metadata.", "team"),
            Parameter("format", {"type": "string", "enum": list(FORMATS)}, "By default `csv`.", "csv"),
        ),
        about="A line for each that spent anything, the dearest first, beside the days before; read from rollups, "
        "which are some minutes old. Of very many end users, or values of a tag, the dearest are told apart, and "
        "`end_user_is` or `tag_is` says which line is `others`, or of requests that name `none`: the lines add up to "
        "the same however they are told apart.",
    ),
    "Statements.get": Operation(
        BOOKS,
        "List statements and credit notes",
        answers=(StatementList,),
        errors=(OFTEN,),
        parameters=(
            Parameter(
                "limit", {"type": "integer", "minimum": 1, "maximum": MOST_STATEMENTS}, "How many; by default 20.", "20"
            ),
            Parameter("before", {"type": "string"}, "The number of the document that the list goes on behind."),
        ),
    ),
    "OneStatement.get": Operation(
        BOOKS,
        "Get a statement or credit note",
        answers=(StatementAnswer,),
        media_too=("text/html", "application/pdf"),
        headers={"Content-Disposition?": "The document's name, of `pdf`."},
        errors=(NotFound("", code="statement_not_found"), OFTEN),
        parameters=(
            Parameter("format", {"type": "string", "enum": list(STATEMENT_FORMATS)}, "By default `json`.", "json"),
        ),
        names={"number": "2026-00001"},
    ),
    "Timeseries.get": Operation(
        BOOKS,
        "Get use over time by model",
        answers=(TimeseriesAnswer,),
        parameters=(METRIC, WIDTH, FIRST_DAY, LAST_DAY, TOP),
        about="At most 60 buckets; by default the last 30 days or 12 weeks. Weeks begin on Monday, and days are moved "
        "back to theirs. Models beyond the limit are `__others__`.",
    ),
    "MarketShare.get": Operation(
        BOOKS,
        "Get use over time by author",
        answers=(MarketShareAnswer,),
        parameters=(METRIC, WIDTH, FIRST_DAY, LAST_DAY, TOP),
        about="As the time series by model. Values are absolute.",
    ),
    "Leaderboard.get": Operation(
        BOOKS,
        "Get the models by use",
        answers=(LeaderboardAnswer,),
        parameters=(METRIC, FIRST_DAY, LAST_DAY, TOP),
        about="By default since the organization's first day. `__others__` has the rank after the last.",
    ),
    "ModelUsage.get": Operation(
        BOOKS,
        "Get one model's use by day",
        answers=(ModelUsageAnswer,),
        parameters=(
            Parameter("model", {"type": "string", "minLength": 1}, "Its slug.", "demo/swift", required=True),
            METRIC,
            *PAST,
        ),
        about="At most 30 days. Days without use are left out; a model that nobody used has none.",
    ),
    "Trending.get": Operation(
        BOOKS,
        "Get the models whose use grows",
        answers=(TrendingAnswer,),
        parameters=(METRIC, WIDTH, replace(LAST_DAY, description="The last UTC day; yesterday."), TOP),
        about="A day against the day before, or seven days against the seven before. The score is log(1 + value) x "
        "(value + a) / (previous value + a), where a is 1000 tokens or a cent.",
    ),
    "Performance.get": Operation(
        BOOKS,
        "Get the fastest models, or the best cached",
        answers=(PerformanceAnswer,),
        parameters=(
            Parameter(
                "metric",
                {"type": "string", "enum": list(METRICS)},
                "Tokens a second, mean milliseconds to the first token, or the share of prompt tokens from a cache.",
                "ttft",
                required=True,
            ),
            *PAST,
        ),
        about="At most 30 days; the ten best models, of your own requests alone.",
    ),
    "TokenUsage.get": Operation(BOOKS, "Get what this key may still spend", answers=(QuotaAnswer,), errors=(OFTEN,)),
    "FileList.post": Operation(
        FILES,
        "Upload a file",
        answers=(File,),
        errors=(UnsupportedMediaType(""),),
        body=UploadForm,
        body_media="multipart/form-data",
        sample={"purpose": "user_data", "file": "@report.pdf"},
    ),
    "FileList.get": Operation(
        FILES,
        "List the project's files",
        answers=(FilePage,),
        parameters=(
            Parameter("limit", {"type": "integer", "minimum": 1, "maximum": MOST_LISTED}, "How many.", "100"),
            Parameter("after", {"type": "string"}, "The id of the file that the page begins behind."),
            Parameter("order", {"type": "string", "enum": ["asc", "desc"]}, "The oldest or the newest first."),
            Parameter("purpose", {"type": "string"}, "Only files of this purpose."),
        ),
    ),
    "OneFile.get": Operation(FILES, "Get a file's description", answers=(File,), errors=NO_FILE, names=FILE_NAME),
    "OneFile.delete": Operation(FILES, "Delete a file", answers=(FileDeleted,), errors=NO_FILE, names=FILE_NAME),
    "FileContent.get": Operation(
        FILES,
        "Get a file's content",
        media="application/octet-stream",
        headers={"Content-Disposition": "The file's name."},
        errors=NO_FILE,
        names=FILE_NAME,
    ),
    "Health.get": Operation(SERVICE, "See whether the process answers", answers=(HealthAnswer,)),
    "Readiness.get": Operation(
        SERVICE,
        "See whether it takes paid work",
        answers=(ReadyAnswer,),
        statuses={503: ("Not ready; `missing` says why.", ReadyAnswer)},
    ),
    "Metrics.get": Operation(SERVICE, "Get metrics for Prometheus", media="text/plain"),
    "Document.get": Operation(SERVICE, "Get this description, for machines", answers=(dict,)),
    "Page.get": Operation(SERVICE, "Get this description, for people", media="text/html"),
}
