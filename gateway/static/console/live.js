// Keeps a part of a page fresh while somebody looks at it: the page is asked for anew, and that part of it put in place.
"use strict";
{
  const EVERY = 5000;
  const begin = (line) => {
    const state = line.querySelector(".live-state"), button = line.querySelector("button");
    const say = (word, level) => {
      const text = `${line.dataset[word]}${word === "fresh" || word === "stopped" ? ` ${new Date().toTimeString().slice(0, 8)}` : ""}`;
      state.textContent = text;
      line.dataset.level = level;
    };
    let timer = 0, going = true, asked = null, turn = 0;
    const refresh = async () => {
      const old = document.querySelector(line.dataset.live);
      // What somebody is about to use stays as it is.
      if (!going || document.hidden || !old || old.contains(document.activeElement)) return;
      asked = new AbortController();
      try {
        const answer = await fetch(location.href, { signal: asked.signal, headers: { "X-Requested-With": "live" } });
        if (!answer.ok || answer.redirected) throw new Error(answer.statusText);
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const fresh = page.querySelector(line.dataset.live);
        if (!going || !fresh || old.contains(document.activeElement)) return;
        old.replaceWith(document.adoptNode(fresh));
        say("fresh", "good");
      } catch (error) {
        if (error.name !== "AbortError") say("failed", "bad");
      }
    };
    // Whatever begins anew meanwhile goes on alone.
    const run = async () => {
      const mine = ++turn;
      await refresh();
      if (mine === turn && going && !document.hidden) timer = setTimeout(run, EVERY);
    };
    const set = (on) => {
      going = on;
      turn++;
      clearTimeout(timer);
      asked?.abort();
      button.textContent = on ? button.dataset.stop : button.dataset.go;
      button.setAttribute("aria-pressed", String(!on));
      say(on ? "fresh" : "stopped", on ? "good" : "busy");
      if (on) timer = setTimeout(run, EVERY);
    };
    button.addEventListener("click", () => set(!going));
    document.addEventListener("visibilitychange", () => {
      if (!going) return;
      turn++;
      clearTimeout(timer);
      asked?.abort();
      if (document.hidden) say("waits", "busy");
      else run();
    });
    line.hidden = false;
    set(true);
  };
  addEventListener("DOMContentLoaded", () => document.querySelectorAll("[data-live]").forEach(begin));
}
