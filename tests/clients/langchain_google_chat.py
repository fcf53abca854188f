"""LangChain's ChatGoogleGenerativeAI. What it is called with and what it prints: see this package's docstring."""

from langchain_google_genai import ChatGoogleGenerativeAI

from tests.clients.langchain_cases import MODEL, run

# Base URL and key come from the environment, as Google's own SDK has them.
run(ChatGoogleGenerativeAI(model=MODEL, max_retries=0))
