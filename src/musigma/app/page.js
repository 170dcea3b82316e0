"use strict";
/* Shows the viewer of every result that appears: the report is one file that holds all its data. */
(() => {
const theme = () => (document.body.classList.contains("dark") ? "dark" : "light");

async function show(place) {
  const address = place.dataset.report;
  place.removeAttribute("data-report");
  const reply = await fetch(address);
  if (!reply.ok) {
    place.textContent = "The result is no longer there. Restore the picture again.";
    return;
  }
  const report = new DOMParser().parseFromString(await reply.text(), "text/html");
  const viewer = document.createElement("div");
  const parts = ["main > .mu-promise", "main > .mu-about"].flatMap((name) => [...report.querySelectorAll(name)]);
  const [promise, about] = parts.map((part) => document.importNode(part, true));
  place.replaceChildren(...[promise, viewer, about].filter(Boolean));
  musigmaViewer.mount(viewer, JSON.parse(report.getElementById("data").textContent));
}

function look() {
  for (const place of document.querySelectorAll("[data-report]")) show(place);
  for (const part of document.querySelectorAll(".musigma:not([data-theme])")) part.dataset.theme = theme();
}

new MutationObserver(look).observe(document.documentElement, { childList: true, subtree: true });
new MutationObserver(() => {
  for (const part of document.querySelectorAll(".musigma")) part.dataset.theme = theme();
}).observe(document.documentElement, { attributes: true, attributeFilter: ["class"], subtree: false });
})();
