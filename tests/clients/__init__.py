"""Clients that nobody here wrote, each driven by a small program that does what a user of that client does.

`PROGRAM MODEL TOOL_URL`, with the base URL and the key in its environment as its SDK has them (OPENAI_BASE_URL and
OPENAI_API_KEY, ANTHROPIC_…, GOOGLE_GEMINI_BASE_URL and GOOGLE_API_KEY), reads a case a line, and prints for each a line
with one JSON object:
`text` (what the model said), `usage` ([prompt tokens, completion tokens] as the client tells them, summed over the
steps of a loop), for the streamed cases `pieces` (the texts as they came), and for `schema` `object` (the parsed
answer). The cases: chat, stream, loop, streamed_loop and schema. The tool of the two loops is called `weather` and
takes a `city`; running it POSTs to TOOL_URL what the simulated provider's model shall do from then on, and its
answer is "sunny in " and the city. The shape that `schema` asks for is an object with a string called `model`, as
a request is one.
"""
