// OpenAI's own SDK for Node. What it is called with and what it prints: see __init__.py.

import { createInterface } from "node:readline";

import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const [model, toolUrl] = process.argv.slice(2);
const client = new OpenAI({ maxRetries: 0 });
const ask = (content) => ({ model, messages: [{ role: "user", content }] });
const both = (usage) => [usage.prompt_tokens, usage.completion_tokens];

const weather = {
  type: "function",
  function: {
    name: "weather",
    description: "The weather in a city.",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    parse: JSON.parse,
    function: async ({ city }) => {
      await fetch(toolUrl, { method: "POST", body: "echo&prompt=11" });
      return `sunny in ${city}`;
    },
  },
};

async function loop(runner) {
  const pieces = [];
  runner.on("content", (piece) => pieces.push(piece));
  const text = await runner.finalContent();
  return { text, pieces, usage: both(await runner.totalUsage()) };
}

const cases = {
  async chat() {
    const answer = await client.chat.completions.create(ask("good day"));
    return { text: answer.choices[0].message.content, usage: both(answer.usage) };
  },
  async stream() {
    const pieces = [];
    let usage;
    const options = { stream: true, stream_options: { include_usage: true } };
    for await (const chunk of await client.chat.completions.create({ ...ask("good day"), ...options })) {
      if (chunk.choices[0]?.delta.content) pieces.push(chunk.choices[0].delta.content);
      if (chunk.usage) usage = both(chunk.usage);
    }
    return { text: pieces.join(""), pieces, usage };
  },
  loop: () => loop(client.chat.completions.runTools({ ...ask("what is the weather?"), tools: [weather] })),
  streamed_loop() {
    const options = { stream: true, stream_options: { include_usage: true } };
    return loop(client.chat.completions.runTools({ ...ask("what is the weather?"), tools: [weather], ...options }));
  },
  async schema() {
    const format = zodResponseFormat(z.object({ model: z.string() }), "request");
    const answer = await client.chat.completions.parse({ ...ask("which model?"), response_format: format });
    const { content, parsed } = answer.choices[0].message;
    return { text: content, object: parsed, usage: both(answer.usage) };
  },
};

for await (const kind of createInterface({ input: process.stdin })) console.log(JSON.stringify(await cases[kind]()));
