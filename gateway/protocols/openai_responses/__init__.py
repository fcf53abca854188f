"""The OpenAI Responses protocol, both directions, without I/O, with the chat form as the typed middle.

A client's body becomes a chat body (`client_request`), and chunks of the chat form become its events
(`client_answer`). A chat body becomes a provider's (`upstream_request`), and its events become chunks
(`upstream_answer`). Where both sides speak the protocol, what was said passes (`native`), and ids of what the provider
keeps are sealed (`sealed_ids`).
"""
