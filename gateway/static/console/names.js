// select2 puts a combobox of its own in a select's place, and does not say what it chooses: the select's label does.
"use strict";
{
  const name = () => {
    for (const select of document.querySelectorAll("select.select2-hidden-accessible")) {
      const box = select.nextElementSibling?.querySelector("[role=combobox], [role=searchbox]");
      const words = select.getAttribute("aria-label") || select.labels?.[0]?.textContent;
      if (box && words) {
        box.removeAttribute("aria-labelledby");
        box.setAttribute("aria-label", `${words.trim()}: ${select.selectedOptions[0]?.textContent.trim() || "none"}`);
      }
    }
  };
  window.addEventListener("load", name);
  document.addEventListener("formset:added", () => setTimeout(name));
  document.addEventListener("change", name);
}
