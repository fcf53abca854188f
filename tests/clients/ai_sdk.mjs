// Vercel's AI SDK with its provider for OpenAI-compatible servers. What it is called with and what it prints: see
// __init__.py.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [kind, name, toolUrl] = process.argv.slice(2);
const provider = createOpenAICompatible({
  name: "meterline",
  baseURL: process.env.OPENAI_BASE_URL,
  apiKey: process.env.OPENAI_API_KEY,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const ask = (prompt) => ({ model: provider(name), prompt, maxRetries: 0 });
const both = (usage) => [usage.inputTokens, usage.outputTokens];

const looping = {
  tools: {
    weather: tool({
      description: "The weather in a city.",
      inputSchema: z.object({ city: z.string() }),
      execute: async ({ city }) => {
        await fetch(toolUrl, { method: "POST", body: "echo&prompt=11" });
        return `sunny in ${city}`;
      },
    }),
  },
  stopWhen: stepCountIs(5),
};

async function streamed(options) {
  const result = streamText({ ...options, onError: ({ error }) => { throw error; } });
  const pieces = [];
  for await (const piece of result.textStream) pieces.push(piece);
  return { text: await result.text, pieces, usage: both(await result.totalUsage) };
}

async function whole(options) {
  const result = await generateText(options);
  return { text: result.text, usage: both(result.totalUsage), object: options.output && result.output };
}

const cases = {
  chat: () => whole(ask("good day")),
  stream: () => streamed(ask("good day")),
  loop: () => whole({ ...ask("what is the weather?"), ...looping }),
  streamed_loop: () => streamed({ ...ask("what is the weather?"), ...looping }),
  schema: () => whole({ ...ask("which model?"), output: Output.object({ schema: z.object({ model: z.string() }) }) }),
};

console.log(JSON.stringify(await cases[kind]()));
