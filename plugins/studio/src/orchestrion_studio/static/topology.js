// A slider over iterations for the picture of who follows whom; nodes keep their place.
export function drawTopologies(within) {
  for (const figure of within.querySelectorAll("figure[data-topology]")) {
    const { steps } = JSON.parse(figure.dataset.topology);
    const slider = figure.querySelector("input[type=range]");
    slider?.addEventListener("input", () => show(figure, slider, steps[slider.value]));
  }
}

function show(figure, slider, step) {
  const shares = new Map(step.edges.map((edge) => [JSON.stringify([edge.from, edge.to]), edge.share]));
  const most = Math.max(...shares.values());
  for (const edge of figure.querySelectorAll("[data-edge]")) {
    const share = shares.get(edge.dataset.edge) ?? 0;
    edge.setAttribute("display", share ? "inline" : "none");
    edge.setAttribute("stroke-width", 0.4 + (4 * share) / most);
    edge.setAttribute("opacity", 0.2 + (0.6 * share) / most);
    edge.querySelector("title").textContent = percent(share);
  }
  const text = step.title;
  figure.querySelector(".step").textContent = text;
  slider.setAttribute("aria-valuetext", text);
  figure.querySelector(".figures p").textContent = `${text}, its first ${step.episodes} episodes`;
  figure.querySelector(".figures tbody").replaceChildren(...step.edges.map((edge) => {
    const row = document.createElement("tr");
    for (const cell of [edge.from, edge.to, percent(edge.share)]) {
      row.append(Object.assign(document.createElement("td"), { textContent: cell }));
    }
    return row;
  }));
}

function percent(share) {
  return `${(100 * share).toFixed(1)}%`;
}
