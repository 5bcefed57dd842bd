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

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
