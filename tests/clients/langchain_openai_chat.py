"""LangChain's ChatOpenAI. What it is called with and what it prints: see this package's docstring."""

from langchain_openai import ChatOpenAI

from tests.clients.langchain_cases import MODEL, run

# Base URL and key come from the environment, as OpenAI's own SDK has them.
run(ChatOpenAI(model=MODEL, max_retries=0, stream_usage=True))
