// The playground: one prompt to several models at once, over the API as any client calls it. The key it calls with is
// made by the console for this page alone, and is nowhere but in the variable below.
"use strict";
{
  const form = document.getElementById("playground");
  const answers = document.getElementById("answers");
  let key = null; // {project, secret, until}
  let running = null; // AbortController of what is under way

  // --- the key ---------------------------------------------------------------------------------------------------
  const secretFor = async (project) => {
    if (key?.project === project && key.until - Date.now() > 120_000) return key.secret;
    const answer = await fetch(form.dataset.mint, {
      method: "POST",
      headers: { "X-CSRFToken": form.elements.csrfmiddlewaretoken.value },
      body: new URLSearchParams({ project }),
    });
    const made = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Error(made.error || `${answer.status}`);
    key = { project, secret: made.key, until: Date.parse(made.expires_at) };
    return key.secret;
  };

  // --- an answer -------------------------------------------------------------------------------------------------
  // The events of a stream, each as its text and what that means.
  async function* events(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += value;
      const parts = rest.split(/\r?\n\r?\n/);
      rest = parts.pop();
      for (const part of parts) {
        const text = part.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trim()).join("\n");
        if (text) yield { text, said: text === "[DONE]" ? null : JSON.parse(text) };
      }
    }
  }
  // An amount as it was sent: a number of this language would round it.
  const cost = (text) => /"cost":\s*([0-9.]+)/.exec(text)?.[1];

  const row = (...cells) => {
    const made = document.createElement("tr");
    for (const cell of cells) made.appendChild(document.createElement("td")).textContent = cell ?? "-";
    return made;
  };
  const showPlan = (place, plan) => {
    const tried = (one) => plan.attempts?.find((attempt) => attempt.provider === one.provider && attempt.model === one.model);
    const became = (attempt) => attempt && (attempt.fault ? `${attempt.status}: ${attempt.fault}` : attempt.status);
    const rows = plan.candidates.map((one) => row(one.order, one.provider, one.why, one.taken ? became(tried(one)) : null));
    place.querySelector("tbody").replaceChildren(...rows);
    place.hidden = false;
  };

  const ask = async (body, secret, signal) => {
    const place = document.getElementById("answer").content.cloneNode(true).firstElementChild;
    const at = (name) => place.querySelector(`[data-${name}]`);
    const state = (level, words) => { at("state").className = `board-state ${level}`; at("state").textContent = words; };
    at("model").textContent = body.model;
    at("code").append(...code(body));
    answers.append(place);
    const begun = performance.now();
    const since = () => `${Math.round(performance.now() - begun).toLocaleString("en")} ms`;
    let finished = false;
    state("busy", "…");
    try {
      const response = await fetch(`${form.dataset.base}/chat/completions`, {
        method: "POST",
        credentials: "omit",
        referrerPolicy: "no-referrer",
        headers: { Authorization: `Bearer ${secret}`, "Content-Type": "application/json", "X-Gateway-Explain": "1" },
        body: JSON.stringify({ ...body, stream: true, usage: { include: true } }),
        signal,
      });
      const id = response.headers.get("X-Generation-Id") ?? "";
      at("generation").textContent = id;
      at("generation").href = form.dataset.generations.replace("ID", () => encodeURIComponent(id));
      if (!response.ok) {
        const text = await response.text();
        const told = JSON.parse(text);
        if (told.x_gateway_plan ?? told.error?.x_gateway_plan) showPlan(at("plan"), told.x_gateway_plan ?? told.error.x_gateway_plan);
        if (response.status === 401) key = null; // it has ended: the next call has another one
        throw new Error(told.error?.message ?? text);
      }
      for await (const { text, said } of events(response)) {
        if (said === null) finished = true;
        if (said?.error) throw new Error(said.error.message);
        const delta = said?.choices?.[0]?.delta ?? {};
        const words = (delta.reasoning_content ?? "") + (delta.content ?? "");
        if (words) {
          if (at("first").textContent === "-") at("first").textContent = since();
          at("text").append(words);
        }
        if (said?.usage) {
          at("tokens").textContent = `${said.usage.prompt_tokens}, ${said.usage.completion_tokens}`;
          if (cost(text) !== undefined) at("cost").textContent = `$${cost(text)}`;
        }
        if (said?.x_gateway_plan) showPlan(at("plan"), said.x_gateway_plan);
      }
      if (!finished) throw new Error(form.dataset.broken);
      state("good", "✓");
    } catch (error) {
      const words = error.name === "AbortError" ? form.dataset.stopped : error instanceof TypeError ? form.dataset.unreached : error.message;
      state("bad", words);
    }
    at("total").textContent = since();
  };

  // --- the same request as a program -----------------------------------------------------------------------------
  const python = (value) =>
    value === null ? "None" : value === true ? "True" : value === false ? "False"
      : Array.isArray(value) ? `[${value.map(python).join(", ")}]`
        : typeof value === "object" ? `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${python(one)}`).join(", ")}}`
          : JSON.stringify(value);
  let made = 0;
  const code = (body) => {
    const json = JSON.stringify(body, null, 2);
    const keywords = Object.entries(body).map(([name, value]) => `    ${name}=${python(value)},`).join("\n");
    made += 1;
    return [...document.querySelectorAll(".play-sample")].map((sample) => {
      const part = sample.content.cloneNode(true).firstElementChild;
      const text = part.querySelector("pre");
      text.id = `${text.id}-${made}`;
      part.querySelector("[data-copy-from]").dataset.copyFrom = text.id;
      const fields = sample.dataset.name === "curl" ? json.replaceAll("'", "'\\''") : json;
      text.textContent = text.textContent.replace("{json}", () => fields).replace("{keywords}", () => keywords);
      return part;
    });
  };

  // --- the form --------------------------------------------------------------------------------------------------
  const wrong = (words) => {
    const place = form.querySelector("[data-wrong]");
    place.textContent = words;
    place.hidden = !words;
  };
  form?.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (running) return;
    const { system, user, temperature, max_tokens: most, project, send, stop } = form.elements;
    const models = [...new Set([...form.querySelectorAll("[name=model]")].map((one) => one.value.trim()).filter(Boolean))];
    if (!models.length) return wrong(form.dataset.none);
    const messages = [...(system.value ? [{ role: "system", content: system.value }] : []), { role: "user", content: user.value }];
    const further = { ...(temperature.value ? { temperature: Number(temperature.value) } : {}), ...(most.value ? { max_tokens: Number(most.value) } : {}) };
    running = new AbortController();
    [send.disabled, stop.disabled] = [true, false];
    wrong("");
    answers.replaceChildren();
    try {
      const secret = await secretFor(project.value);
      await Promise.all(models.map((model) => ask({ model, messages, ...further }, secret, running.signal)));
    } catch (error) {
      wrong(error.message);
    }
    running = null;
    [send.disabled, stop.disabled] = [false, true];
  });
  form?.elements.stop.addEventListener("click", () => running?.abort());
}
