from django.apps import AppConfig
from django.utils.translation import gettext_lazy


class AccountsConfig(AppConfig):
    name = "accounts"
    verbose_name = gettext_lazy("Accounts")

    def ready(self) -> None:
        """Has sessions end with a password."""
        from accounts.sign_in import sessions

        sessions.connect()
