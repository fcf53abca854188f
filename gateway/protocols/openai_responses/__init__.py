"""The OpenAI Responses protocol, both directions, without I/O, with the chat form as the typed middle.

A client's body becomes a chat body (`client_request`), and chunks of the chat form become its events
(`client_answer`). A chat body becomes a provider's (`upstream_request`), and its events become chunks
(`upstream_answer`). Where both sides speak the protocol, what was said passes (`native`).

What was decided where the protocol knows more than chat does:

- The account at a provider is shared by all tenants, so nothing may be named that is kept there: `conversation` and
  `prompt` are refused, and `previous_response_id` is a sealed one (`gateway.request.sealed_ids`), served by the
  credential that is in it. `background` is refused, since nobody could fetch the answer
- Nothing is kept here either, so an item is named by its id only where another id in the request carries it (`carried`)
- Tools that the client runs are functions to a model of another protocol: the local shell, and those of a namespace
  under both names. A search of the web is `web_search_options`; one among given sites, and every other tool that the
  provider runs, needs an offer of this protocol; one in what the provider has indexed may be left out, and is named
- A picture that a tool gave follows the results in a message of the user's, as chat has no other place for it
- Thoughts of other providers come and go in `encrypted_content`, packed, so that signatures survive every client
- An effort is asked for, and a budget becomes the nearest one; a cap below what a provider takes is raised to that
- What fails midway is told twice, by `error` and `response.failed`: some clients read one, some the other
"""
