// Follows a run: the server says that there is news, and the parts that changed are replaced.
// A part in which somebody is typing or moving a slider waits.
export function follow(element) {
  soon();
  if (!element) return;
  const news = new EventSource(element.dataset.follow);
  let busy = false;
  let missed = false;

  async function refresh() {
    missed = busy || document.hidden;
    if (missed) return;
    busy = true;
    missed = !(await load());
    busy = false;
  }

  news.addEventListener("changed", refresh);
  news.addEventListener("ended", () => {
    news.close();
    refresh();
  });
  document.addEventListener("visibilitychange", () => {
    if (missed) refresh();
  });
}

// Looks again for what the server is still computing.
let waiting = false;
function soon() {
  if (waiting || !document.querySelector("[data-soon]")) return;
  waiting = true;
  setTimeout(async () => {
    waiting = false;
    if (document.hidden || !(await load())) soon();
  }, 1000);
}

async function load() {
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (answer.ok) replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
    soon();
    return answer.ok;
  } catch {
    return false; // the server is away; the next event tries again
  }
}

const known = new Map(); // id -> HTML as the server sent it
for (const part of document.querySelectorAll("[data-live]")) known.set(part.id, part.outerHTML);

function replace(fresh) {
  for (const part of fresh.querySelectorAll("[data-live]")) {
    const old = document.getElementById(part.id);
    const html = part.outerHTML;
    if (known.get(part.id) === html) continue;
    if (!old) {
      location.reload(); // a part of the page is new, e.g. with the first episode
      return;
    }
    if (old.contains(document.activeElement)) continue;
    known.set(part.id, html);
    keep(old, part);
    old.replaceWith(part);
    part.dispatchEvent(new Event("studio:replaced", { bubbles: true }));
  }
}

// What somebody opened stays open, and a plot keeps its height while it is drawn anew.
function keep(old, part) {
  const before = old.querySelectorAll("details");
  part.querySelectorAll("details").forEach((one, number) => {
    if (before[number]?.open) one.open = true;
  });
}
