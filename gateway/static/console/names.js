// select2 puts a combobox of its own in a select's place, and does not say what it chooses: the select's label does.
"use strict";
{
  const name = () => {
    for (const select of document.querySelectorAll("select.select2-hidden-accessible")) {
      const boxes = select.nextElementSibling?.querySelectorAll("[role=combobox], [role=searchbox], [role=textbox]");
      const words = select.getAttribute("aria-label") || select.labels?.[0]?.textContent;
      for (const box of words ? (boxes ?? []) : []) {
        box.removeAttribute("aria-labelledby");
        box.setAttribute("aria-label", `${words.trim().replace("*", "")}: ${select.selectedOptions[0]?.textContent.trim() || "none"}`);
      }
    }
  };
  // A column of numbers is read by the last digit: its head stands above that.
  const heads = () => {
    for (const table of document.querySelectorAll("table")) {
      const heads = table.tHead?.rows[0]?.cells ?? [];
      for (const [at, cell] of [...(table.tBodies[0]?.rows[0]?.cells ?? [])].entries())
        if (cell.querySelector(":scope > .number, :scope > a > .number")) heads[at]?.classList.add("number");
    }
  };
  // What is wider than its place is scrolled by keys, too, once it takes the focus.
  const scrolled = () => {
    for (const part of document.querySelectorAll(".board-scroll")) {
      if (part.scrollWidth > part.clientWidth) part.setAttribute("tabindex", "0");
      else part.removeAttribute("tabindex");
    }
  };
  document.addEventListener("DOMContentLoaded", heads);
  addEventListener("load", scrolled);
  addEventListener("resize", scrolled);
  // They come when a page is loaded and with each further row; names are attributes, so this does not call itself.
  new MutationObserver(name).observe(document.documentElement, { childList: true, subtree: true });
  document.addEventListener("change", name);
}
