"""The paths of signing in, before those of Django's admin, whose login and change of a password they stand for."""

from django.urls import path

from gateway.console.sign_in import accepting, inviting, login, mine, second_step, single_sign_on

urlpatterns = [
    path("console/login/", login.login, name="login"),
    path("console/login/second/", second_step.second_step, name="second_step"),
    path("console/login/passkey/", second_step.passkey_login, name="passkey_login"),
    path("console/login/passkey/options/", second_step.passkey_options, {"known": False}, name="passkey_options"),
    path("console/login/second/options/", second_step.passkey_options, {"known": True}, name="second_options"),
    path("console/login/sso/", single_sign_on.leave, name="sso"),
    path("console/login/sso/back/", single_sign_on.back, name="sso_back"),
    path("console/invitation/", accepting.open_invitation, name="open_invitation"),
    path("console/invitation/accept/", accepting.accept_invitation, name="accept_invitation"),
    path("console/password_change/", login.change_password),
    path("console/accounts/user/<path:id>/password/", login.give_password),
    path("console/me/", mine.my_sign_in, name="my_sign_in"),
    path("console/me/again/", second_step.sign_in_again, name="sign_in_again"),
    path("console/me/app/", mine.new_totp, name="new_totp"),
    path("console/me/app/remove/", mine.remove_totp, name="remove_totp"),
    path("console/me/passkeys/", mine.passkey_new, name="passkey_new"),
    path("console/me/passkeys/options/", mine.passkey_new_options, name="passkey_new_options"),
    path("console/me/passkeys/<uuid:pk>/name/", mine.passkey_rename, name="passkey_rename"),
    path("console/me/passkeys/<uuid:pk>/remove/", mine.passkey_remove, name="passkey_remove"),
    path("console/me/codes/", mine.new_codes, name="new_codes"),
    path("console/me/sessions/", mine.end_sessions, name="end_sessions"),
    path("console/invitations/", inviting.invite, name="invite"),
    path("console/invitations/<uuid:pk>/revoke/", inviting.take_back, name="take_back"),
]
