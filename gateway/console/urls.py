"""The console's paths. They are loaded, and the console with them, by a process that serves it."""

from django.contrib import admin
from django.urls import path
from django.views.generic import RedirectView

from billing.console import end_users, spend
from gateway.console import cuts, health_board, model_board, search
from gateway.console.sign_in.urls import urlpatterns as sign_in

urlpatterns = [
    path("console/health/", admin.site.admin_view(health_board.board), name="health_board"),
    path("console/health/model/<int:model>/", admin.site.admin_view(model_board.board), name="health_model"),
    path("console/health/<int:offer>/forced/", admin.site.admin_view(health_board.force), name="health_force"),
    path(
        "console/health/<int:offer>/end-rests/", admin.site.admin_view(health_board.end_rests), name="health_end_rests"
    ),
    path("console/spend/", admin.site.admin_view(spend.page), name="spend"),
    path("console/spend/export/", admin.site.admin_view(spend.export), name="spend_export"),
    path("console/end-users/", admin.site.admin_view(end_users.page), name="end_users"),
    path("console/open/<uuid:generation>/cut/", admin.site.admin_view(cuts.cut), name="cut_request"),
    path("console/search/", admin.site.admin_view(search.page), name="search"),
    *sign_in,
    path("console/", admin.site.urls),
    path("", RedirectView.as_view(pattern_name="admin:index")),
]
