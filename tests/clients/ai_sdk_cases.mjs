// What a program of Vercel's AI SDK does in each case, whichever provider it has: see __init__.py.

import { createInterface } from "node:readline";

import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [name, toolUrl] = process.argv.slice(2);
const asking = (provider) => (prompt) => ({ model: provider(name), prompt, maxRetries: 0 });
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

const casesOf = (ask) => ({
  chat: () => whole(ask("good day")),
  stream: () => streamed(ask("good day")),
  loop: () => whole({ ...ask("what is the weather?"), ...looping }),
  streamed_loop: () => streamed({ ...ask("what is the weather?"), ...looping }),
  schema: () => whole({ ...ask("which model?"), output: Output.object({ schema: z.object({ model: z.string() }) }) }),
});

export async function run(provider) {
  const cases = casesOf(asking(provider));
  for await (const kind of createInterface({ input: process.stdin })) console.log(JSON.stringify(await cases[kind]()));
}
