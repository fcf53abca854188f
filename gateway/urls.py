"""The API's paths, under /v1 and /api/v1 alike, and the console's."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path, re_path
from django.views.generic import RedirectView

from gateway import file_views, views
from gateway.rest import UnknownPath

v1 = [
    path("chat/completions", views.ChatCompletions.as_view()),
    path("models", views.Models.as_view()),
    path("models/<path:name>", views.OneModel.as_view()),
    path("generation", views.Generations.as_view()),
    path("files", file_views.FileList.as_view()),
    path("files/<str:name>", file_views.OneFile.as_view()),
    path("files/<str:name>/content", file_views.FileContent.as_view()),
]

urlpatterns: list[URLPattern | URLResolver] = [
    path("v1/", include(v1)),
    path("api/v1/", include(v1)),
    path("healthz", views.Health.as_view()),
    path("readyz", views.Readiness.as_view()),
    path("metrics", views.Metrics.as_view()),
    re_path(r"^(v1|api)(/.*)?$", UnknownPath.as_view()),
    path("console/", admin.site.urls),
    path("", RedirectView.as_view(pattern_name="admin:index")),
]
