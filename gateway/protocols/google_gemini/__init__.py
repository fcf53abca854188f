"""The Google Gemini generateContent protocol, both directions, without I/O; the chat form is its middle.

A client of it: `client_request` makes its body a chat body, `client_answer` writes the answer for it, `errors` tells it
of failures. A provider of it: `upstream_request` makes the body it is sent, `upstream_answer` reads what it says, and
`errors` what went wrong. `signatures` says how thoughts and their signatures pass through the chat form.
"""
