// Vercel's AI SDK with its provider for OpenAI-compatible servers. What it is called with and what it prints: see
// __init__.py.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";

import { run } from "./ai_sdk_cases.mjs";

await run(
  createOpenAICompatible({
    name: "meterline",
    baseURL: process.env.OPENAI_BASE_URL,
    apiKey: process.env.OPENAI_API_KEY,
    includeUsage: true,
    supportsStructuredOutputs: true,
  }),
);
