"""The Anthropic Messages protocol, both directions, without I/O, with the chat form as the middle.

    client                               provider
    client_request   a body -> chat      upstream_request  chat -> a body       variants  how a service is called
    client_answer    chat -> events      upstream_answer   events -> chat       faults    what an error means
    native           where both speak it, what passes and what is changed

Shared by both directions: `thoughts`, `media`, `schemas`, `names`, `efforts`, `usage`, `ends`.
"""
