"""The console's paths. They are loaded, and the console with them, by a process that serves it."""

from django.contrib import admin
from django.urls import path
from django.views.generic import RedirectView
from django.views.i18n import set_language

from billing.console import end_users, spend
from gateway.console import cuts, health_board, search
from gateway.console.catalog import listing, model_page
from gateway.console.catalog.reader import for_readers
from gateway.console.playground import minting
from gateway.console.playground import page as playground
from gateway.console.sign_in.urls import urlpatterns as sign_in
from gateway.console.starting import credentials, first_request

urlpatterns = [
    path("console/health/", admin.site.admin_view(health_board.board), name="health_board"),
    path("console/health/<int:offer>/forced/", admin.site.admin_view(health_board.force), name="health_force"),
    path(
        "console/health/<int:offer>/end-rests/", admin.site.admin_view(health_board.end_rests), name="health_end_rests"
    ),
    path(
        "console/credentials/<uuid:credential>/test/",
        admin.site.admin_view(credentials.test_credential),
        name="credential_test",
    ),
    path("console/first-request/", admin.site.admin_view(first_request.first_request), name="first_request"),
    path("console/spend/", admin.site.admin_view(spend.page), name="spend"),
    path("console/spend/export/", admin.site.admin_view(spend.export), name="spend_export"),
    path("console/end-users/", admin.site.admin_view(end_users.page), name="end_users"),
    path("console/language/", set_language, name="set_language"),
    path("console/catalog/", for_readers(listing.page), name="catalog"),
    path("console/catalog/compare/", for_readers(listing.compare), name="catalog_compare"),
    path("console/catalog/models/<path:slug>/", for_readers(model_page.page), name="catalog_model"),
    path("console/playground/", admin.site.admin_view(playground.page), name="playground"),
    path("console/playground/key/", admin.site.admin_view(minting.mint), name="playground_key"),
    path("console/open/<uuid:generation>/cut/", admin.site.admin_view(cuts.cut), name="cut_request"),
    path("console/search/", admin.site.admin_view(search.page), name="search"),
    *sign_in,
    path("console/", admin.site.urls),
    path("", RedirectView.as_view(pattern_name="admin:index")),
]
