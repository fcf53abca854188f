"""How people prove who they are: second factors, single sign-on, invitations, and the sessions that follow."""
