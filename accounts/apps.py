from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "accounts"
    verbose_name = "Accounts"

    def ready(self) -> None:
        """Has sessions end with a password."""
        from accounts.sign_in import sessions

        sessions.connect()
