from django.apps import AppConfig
from django.utils.translation import gettext_lazy


class RoutingConfig(AppConfig):
    name = "routing"
    verbose_name = gettext_lazy("Routing")
