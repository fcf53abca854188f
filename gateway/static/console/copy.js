// Buttons that copy: what they say themselves, or what an element holds.
"use strict";
{
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy], [data-copy-from]");
    if (!button) return;
    const from = button.dataset.copyFrom ? document.getElementById(button.dataset.copyFrom) : button.previousElementSibling;
    const words = button.textContent;
    try {
      await navigator.clipboard.writeText(button.dataset.copy || from.textContent);
    } catch {
      // Without a clipboard (plain http, or not allowed) the text is chosen, for the person's own keys.
      if (from) getSelection().selectAllChildren(from);
      return;
    }
    if (words === button.dataset.copied) return;
    button.textContent = button.dataset.copied;
    setTimeout(() => { button.textContent = words; }, 2000);
  });
}
