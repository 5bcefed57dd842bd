// Makes plots interactive, follows a run, and switches between dark and light. Pages work without
// it: every plot is drawn by the server, and every form is an ordinary form.
import { drawPlots } from "./plots.js";
import { drawTopologies } from "./topology.js";
import { follow } from "./live.js";

const root = document.documentElement;

function enhance(within) {
  drawPlots(within);
  drawTopologies(within);
}

document.getElementById("theme")?.addEventListener("click", () => {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const next = (root.dataset.theme || system) === "dark" ? "light" : "dark";
  root.dataset.theme = next;
  localStorage.setItem("orchestrion-theme", next);
  document.dispatchEvent(new Event("studio:colours"));
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
  document.dispatchEvent(new Event("studio:colours")),
);

// "/" goes to the search field.
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea");
  const field = document.querySelector(`[data-shortcut="${CSS.escape(event.key)}"]`);
  if (field && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    field.focus();
  }
});

for (const field of document.querySelectorAll("[data-submit]")) {
  field.addEventListener("change", () => field.form.requestSubmit());
}

enhance(document);
document.addEventListener("htmx:after:swap", () => enhance(document));
document.addEventListener("studio:replaced", (event) => enhance(event.target));
follow(document.querySelector("[data-follow]"));
