from django.apps import AppConfig


class GatewayConfig(AppConfig):
    name = "gateway"
    verbose_name = "Gateway"

    def ready(self) -> None:
        """Registers the system checks."""
        from gateway import checks  # noqa: F401 - imported for what it registers
