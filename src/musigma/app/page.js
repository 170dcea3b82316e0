"use strict";
/* Shows the viewer of every result that appears: the report is one file that holds all its data.

   The viewer stands in a shadow tree, where the rules of gradio do not reach it. */
(() => {
const surfaces = new Set();  // the roots of the viewers

function paint(part) {
  part.dataset.theme = document.body.classList.contains("dark") ? "dark" : "light";
}

function surfaceIn(place) {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(document.getElementById("musigma-style").textContent);
  const shadow = place.attachShadow({ mode: "open" });
  shadow.adoptedStyleSheets = [sheet];
  const surface = document.createElement("div");
  surface.className = "musigma app-surface";
  paint(surface);
  shadow.append(surface);
  surfaces.add(surface);
  return surface;
}

/* Return what asks the server for the interval of the mean of a box. */
function measureBy(address) {
  return async ({ x, y, width, height }) => {
    try {
      return await (await fetch(`${address}?box=${[x, y, width, height]}`)).json();
    } catch {
      return { error: "the server does not answer" };
    }
  };
}

async function show(place) {
  const { report: address, box: boxAddress } = place.dataset;
  place.removeAttribute("data-report");
  const reply = await fetch(address);
  if (!reply.ok) {
    place.textContent = "The result is no longer there. Restore the picture again.";
    return;
  }
  const report = new DOMParser().parseFromString(await reply.text(), "text/html");
  const promises = [...report.querySelectorAll("main > .mu-promise")];
  const viewer = document.importNode(report.getElementById("viewer"), true);
  surfaceIn(place).append(...promises.map((part) => document.importNode(part, true)), viewer);
  musigmaViewer.mount(viewer, JSON.parse(report.getElementById("data").textContent), boxAddress && measureBy(boxAddress));
  const result = place.closest(".app-result");
  if (result.getBoundingClientRect().top > innerHeight) result.scrollIntoView();  // below, on a phone
}

function look() {
  for (const place of document.querySelectorAll("[data-report]")) show(place);
  for (const surface of surfaces) if (!surface.isConnected) surfaces.delete(surface);
  for (const part of [...document.querySelectorAll(".musigma:not([data-theme])"), ...surfaces]) paint(part);
}

const changes = { childList: true, subtree: true, attributes: true, attributeFilter: ["class"] };
new MutationObserver(look).observe(document.documentElement, changes);
})();
