// Keys of the pages of episodes, and what a select does when it changes.
const typing = (element) => element.closest("input, select, textarea, [contenteditable]");
const open = [];

function step(selector, by) {
  const all = [...document.querySelectorAll(selector)].filter((element) => element.offsetParent);
  if (!all.length) return;
  const now = all.findIndex((element) => element.classList.contains("here"));
  const next = all[now < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(now + by, 0), all.length - 1)];
  all[now]?.classList.remove("here");
  next.classList.add("here");
  const link = next.matches("tr") ? next.querySelector("a") : next;
  link?.focus({ preventScroll: true });
  next.scrollIntoView({ block: next.matches("tr") ? "nearest" : "start" });
  if (next.id) history.replaceState(null, "", `#${next.id}`);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (typing(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const target = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (target) {
    event.preventDefault();
    if (target.href) location.assign(target.href);
    else target.focus();
  } else if (event.key === "j" || event.key === "k") {
    step(document.querySelector(".list") ? ".list tbody tr" : ".turn", event.key === "j" ? 1 : -1);
  } else if (event.key === "e") {
    const folds = open.length ? open.splice(0) : [...document.querySelectorAll(".ep details:not([open])")];
    const unfold = folds.length && !folds[0].open;
    for (const fold of folds) fold.open = unfold;
    if (unfold) open.push(...folds);
  }
});

// A link to a turn unfolds what it is in.
function reveal() {
  let target = null;
  try {
    target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  } catch {
    return;
  }
  if (!target?.classList.contains("turn")) return;
  let outer = target.parentElement?.closest("details");
  for (; outer; outer = outer.parentElement?.closest("details")) outer.open = true;
  document.querySelector(".turn.here")?.classList.remove("here");
  target.classList.add("here");
  target.scrollIntoView();
}
addEventListener("hashchange", reveal);
reveal();

const form = document.querySelector("form.filters");
form?.addEventListener("change", (event) => {
  if (event.target.matches("select")) form.requestSubmit();
});
// What is empty has no place in an address that is shared.
form?.addEventListener("formdata", (event) => {
  for (const [name, value] of [...event.formData]) if (!value) event.formData.delete(name);
});
