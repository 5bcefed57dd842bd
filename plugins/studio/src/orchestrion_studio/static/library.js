// Loads a vendored library when a page needs it, once.
const loading = new Map();

export function library(file) {
  if (!loading.has(file)) {
    loading.set(
      file,
      new Promise((resolve, reject) => {
        const script = document.createElement("script");
        script.src = new URL(`vendor/${file}`, import.meta.url).href;
        script.onload = resolve;
        script.onerror = reject;
        document.head.append(script);
      }),
    );
  }
  return loading.get(file);
}

// Returns a colour of the style sheet as it is now, dark or light, with a share of opacity.
const probe = document.body.appendChild(document.createElement("i"));

export function colour(name, share = 1) {
  probe.style.color = `color-mix(in srgb, var(--${name}) ${100 * share}%, transparent)`;
  return getComputedStyle(probe).color;
}
