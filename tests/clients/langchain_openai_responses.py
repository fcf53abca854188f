"""LangChain's ChatOpenAI over Responses. What it is called with and what it prints: see this package's docstring."""

from langchain_openai import ChatOpenAI

from tests.clients.langchain_cases import MODEL, run

# Base URL and key come from the environment, as OpenAI's own SDK has them.
run(ChatOpenAI(model=MODEL, max_retries=0, use_responses_api=True))
