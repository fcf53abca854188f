"""The API's paths, under /v1 and /api/v1 alike, and the console's where it is served."""

from django.conf import settings
from django.urls import URLPattern, URLResolver, include, path, re_path

from gateway.door.unknown import UNVERSIONED, UnknownPath
from gateway.endpoints import (
    chat,
    completions,
    embeddings,
    exports,
    files,
    generate_content,
    generations,
    management,
    messages,
    models,
    performance,
    probes,
    responses,
    statements,
    statistics,
)
from gateway.endpoints.model_lists import ANTHROPIC, GOOGLE
from gateway.openapi import pages

# A model of Google's protocol may stand behind its publisher, and a project's, as in Vertex.
generate = [
    path(f"{place}models/<path:name>:{method}", view)
    for place in (
        "",
        "publishers/<str:publisher>/",
        "projects/<str:project>/locations/<str:location>/publishers/<str:publisher>/",
    )
    for method, view in (
        ("generateContent", generate_content.GenerateContent.as_view()),
        ("streamGenerateContent", generate_content.StreamGenerateContent.as_view()),
        ("countTokens", generate_content.CountContent.as_view()),
    )
]

v1 = [
    *generate,
    path("chat/completions", chat.ChatCompletions.as_view()),
    path("completions", completions.Completions.as_view()),
    path("embeddings", embeddings.Embeddings.as_view()),
    path("responses", responses.Responses.as_view()),
    path("messages", messages.Messages.as_view()),
    path("messages/count_tokens", messages.CountTokens.as_view()),
    path("route", chat.Route.as_view()),
    path("models", models.Models.as_view()),
    path("models/<path:name>", models.OneModel.as_view()),
    path("generation", generations.Generations.as_view(deprecated=True)),
    path("exports/generations", exports.GenerationsExport.as_view()),
    path("exports/spend", exports.SpendExport.as_view()),
    path("exports/statements", statements.Statements.as_view()),
    path("exports/statements/<str:number>", statements.OneStatement.as_view()),
    path("management/generation", generations.Generations.as_view()),
    path("management/payg/balance", management.Balance.as_view()),
    path("management/usage", management.UsageReport.as_view()),
    path("management/statistics/timeseries", statistics.Timeseries.as_view()),
    path("management/statistics/leaderboard", statistics.Leaderboard.as_view()),
    path("management/statistics/market_share", statistics.MarketShare.as_view()),
    path("management/statistics/model_usage", statistics.ModelUsage.as_view()),
    path("management/statistics/trending", statistics.Trending.as_view()),
    path("management/statistics/performance", performance.Performance.as_view()),
    path("user/balance", management.Balance.as_view()),
    path("files", files.FileList.as_view()),
    path("files/<str:name>", files.OneFile.as_view()),
    path("files/<str:name>/content", files.FileContent.as_view()),
]

anthropic = [
    path("messages", messages.Messages.as_view()),
    path("messages/count_tokens", messages.CountTokens.as_view()),
    path("models", models.Models.as_view(shape=ANTHROPIC)),
    path("models/<path:name>", models.OneModel.as_view(shape=ANTHROPIC)),
]

google = [
    *generate,
    path("models", models.Models.as_view(shape=GOOGLE)),
    path("models/<path:name>", models.OneModel.as_view(shape=GOOGLE)),
]

urlpatterns: list[URLPattern | URLResolver] = [
    path("v1/", include(v1)),
    # Whatever base URL an SDK was given, with its version, without, or twice.
    path("v1/v1/", include(v1)),
    path("", include([entry for entry in v1 if str(entry.pattern).startswith(UNVERSIONED)])),
    path("api/v1/", include(v1)),
    path("anthropic/v1/", include(anthropic)),
    path("api/anthropic/v1/", include(anthropic)),
    path("v1beta/", include(google)),
    path("v1beta1/", include(google)),
    path("api/vertex-ai/v1/", include(google)),
    path("api/vertex-ai/v1beta/", include(google)),
    path("api/vertex-ai/v1beta1/", include(google)),
    re_path(r"^api/usage/token/?$", management.TokenUsage.as_view()),
    path("healthz", probes.Health.as_view()),
    path("readyz", probes.Readiness.as_view()),
    path("metrics", probes.Metrics.as_view()),
    path("openapi.json", pages.Document.as_view()),
    path("docs", pages.Page.as_view()),
    path("docs/docs.css", pages.Stylesheet.as_view()),
    re_path(r"^(api/)?anthropic(/(?s:.*))?$", UnknownPath.as_view(protocol=messages.Messages.protocol)),
    re_path(r"^(v1beta1?|api/vertex-ai)(/(?s:.*))?$", UnknownPath.as_view(protocol=generate_content.Gemini.protocol)),
    re_path(rf"^(v1|api|{'|'.join(UNVERSIONED)})(/(?s:.*))?$", UnknownPath.as_view()),
]
if settings.SERVE != "gateway":
    handler400, handler403 = "gateway.console.refusals.not_understood", "gateway.console.refusals.forbidden"
    handler404, handler500 = "gateway.console.refusals.not_found", "gateway.console.refusals.broken"
    urlpatterns.append(path("", include("gateway.console.urls")))
