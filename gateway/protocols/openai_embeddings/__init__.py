"""The OpenAI embeddings protocol, both directions, without I/O: texts or tokens in, a vector for each out."""

from gateway.protocols.openai_chat import fault_from_response
from gateway.protocols.openai_embeddings.answer import AnswerReader
from gateway.protocols.openai_embeddings.request import EmbeddingsRequest, parse, upstream_body

__all__ = ["AnswerReader", "EmbeddingsRequest", "fault_from_response", "parse", "upstream_body"]
