"""LangChain's ChatAnthropic. What it is called with and what it prints: see this package's docstring."""

from langchain_anthropic import ChatAnthropic

from tests.clients.langchain_cases import MODEL, run

# Base URL and key come from the environment, as Anthropic's own SDK has them.
run(ChatAnthropic(model_name=MODEL, max_retries=0, timeout=60, stop=None))
