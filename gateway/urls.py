"""The API's paths, under /v1 and /api/v1 alike, and the console's."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path, re_path
from django.views.generic import RedirectView

from gateway.console import health_board, model_board
from gateway.door.view import UnknownPath
from gateway.endpoints import chat as views
from gateway.endpoints import files as file_views
from gateway.endpoints import generations as generation_views
from gateway.endpoints import management as management_views
from gateway.endpoints import models as model_views
from gateway.endpoints import performance as performance_views
from gateway.endpoints import statistics as statistics_views
from gateway.endpoints.model_lists import ANTHROPIC, GOOGLE
from gateway.openapi import pages as docs_views

v1 = [
    path("chat/completions", views.ChatCompletions.as_view()),
    path("route", views.Route.as_view()),
    path("models", model_views.Models.as_view()),
    path("models/<path:name>", model_views.OneModel.as_view()),
    path("generation", generation_views.Generations.as_view(deprecated=True)),
    path("management/generation", generation_views.Generations.as_view()),
    path("management/payg/balance", management_views.Balance.as_view()),
    path("management/usage", management_views.UsageReport.as_view()),
    path("management/statistics/timeseries", statistics_views.Timeseries.as_view()),
    path("management/statistics/leaderboard", statistics_views.Leaderboard.as_view()),
    path("management/statistics/market_share", statistics_views.MarketShare.as_view()),
    path("management/statistics/model_usage", statistics_views.ModelUsage.as_view()),
    path("management/statistics/trending", statistics_views.Trending.as_view()),
    path("management/statistics/performance", performance_views.Performance.as_view()),
    path("user/balance", management_views.Balance.as_view()),
    path("files", file_views.FileList.as_view()),
    path("files/<str:name>", file_views.OneFile.as_view()),
    path("files/<str:name>/content", file_views.FileContent.as_view()),
]

anthropic = [
    path("models", model_views.Models.as_view(shape=ANTHROPIC)),
    path("models/<path:name>", model_views.OneModel.as_view(shape=ANTHROPIC)),
]

google = [
    path("models", model_views.Models.as_view(shape=GOOGLE)),
    path("models/<path:name>", model_views.OneModel.as_view(shape=GOOGLE)),
]

urlpatterns: list[URLPattern | URLResolver] = [
    path("v1/", include(v1)),
    path("api/v1/", include(v1)),
    path("anthropic/v1/", include(anthropic)),
    path("api/anthropic/v1/", include(anthropic)),
    path("v1beta/", include(google)),
    path("api/vertex-ai/v1beta/", include(google)),
    re_path(r"^api/usage/token/?$", management_views.TokenUsage.as_view()),
    path("healthz", views.Health.as_view()),
    path("readyz", views.Readiness.as_view()),
    path("metrics", views.Metrics.as_view()),
    path("openapi.json", docs_views.Document.as_view()),
    path("docs", docs_views.Page.as_view()),
    path("docs/docs.css", docs_views.Stylesheet.as_view()),
    re_path(r"^(v1|v1beta|api|anthropic)(/.*)?$", UnknownPath.as_view()),
    path("console/health/", admin.site.admin_view(health_board.board), name="health_board"),
    path("console/health/model/<int:model>/", admin.site.admin_view(model_board.board), name="health_model"),
    path("console/health/<int:offer>/forced/", admin.site.admin_view(health_board.force), name="health_force"),
    path(
        "console/health/<int:offer>/end-rests/", admin.site.admin_view(health_board.end_rests), name="health_end_rests"
    ),
    path("console/", admin.site.urls),
    path("", RedirectView.as_view(pattern_name="admin:index")),
]
