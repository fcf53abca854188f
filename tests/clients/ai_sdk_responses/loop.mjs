// Vercel's AI SDK as it calls OpenAI by default: Responses, with answers kept (`store`). `loop.mjs CASE MODEL TOOL_URL
// NEXT`: a question whose answer calls a tool, the tool's result, and a second question. The tool POSTs NEXT to TOOL_URL,
// which is what the provider says from then on. Prints the texts of both answers, and what was thought.

import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [kind, name, toolUrl, next] = process.argv.slice(2);
const model = createOpenAI({ baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY })(name);
const tools = {
  get_weather: tool({
    description: "The weather in a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => {
      await fetch(toolUrl, { method: "POST", body: next });
      return `snow in ${city}`;
    },
  }),
};

async function said(messages) {
  const options = { model, messages, tools, stopWhen: stepCountIs(5), maxRetries: 0 };
  if (kind === "whole") {
    const result = await generateText(options);
    return { text: result.text, steps: result.steps, messages: result.responseMessages ?? result.response.messages };
  }
  const result = streamText({ ...options, onError: ({ error }) => console.error(error) });
  await result.consumeStream();
  return { text: await result.text, steps: await result.steps, messages: (await result.responseMessages) ?? (await result.response).messages };
}

const first = [{ role: "user", content: "What is the weather?" }];
const answer = await said(first);
const second = await said([...first, ...answer.messages, { role: "user", content: "And tomorrow?" }]);
const texts = [...answer.steps, ...second.steps].map((step) => step.text);
const thought = answer.steps[0].reasoningText ?? "";
console.log(JSON.stringify({ texts, thought }));
