"""The pages of signing in: passwords, second factors, passkeys, single sign-on, invitations, sessions."""
