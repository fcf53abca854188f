// Vercel's AI SDK with its provider for OpenAI, which calls Responses. What it is called with and what it prints: see
// __init__.py.

import { openai } from "@ai-sdk/openai";

import { run } from "./ai_sdk_cases.mjs";

await run(openai);
