// Who follows whom, with a slider over iterations. Nodes keep their place, so that changes show.
import { colour, library } from "./library.js";

const graphs = new Map(); // figure -> Cytoscape

export function drawTopologies(within) {
  for (const [figure, graph] of graphs) {
    if (figure.isConnected) continue;
    graph.destroy();
    graphs.delete(figure);
  }
  for (const figure of within.querySelectorAll("figure[data-topology]")) draw(figure);
}

document.addEventListener("studio:colours", () => {
  for (const graph of graphs.values()) graph.style(style());
});

async function draw(figure) {
  if (graphs.has(figure)) return;
  await library("cytoscape.min.js");
  if (!figure.isConnected || graphs.has(figure)) return;
  const { nodes, steps } = JSON.parse(figure.dataset.topology);
  const canvas = figure.querySelector(".canvas");
  canvas.classList.add("drawn");
  const picture = canvas.querySelector("svg");
  const label = picture?.getAttribute("aria-label") || "Who follows whom";
  canvas.replaceChildren();
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", label);
  const graph = cytoscape({
    container: canvas,
    elements: nodes.map((node) => ({
      data: { id: node.name },
      classes: `${node.name.startsWith("(") ? "ends" : ""} ${node.y > 0.5 ? "low" : ""}`,
    })),
    layout: { name: "preset" },
    style: style(),
    autoungrabify: true,
    userZoomingEnabled: false,
    userPanningEnabled: false,
    boxSelectionEnabled: false,
    autounselectify: true,
  });
  graphs.set(figure, graph);
  const arrange = () => {
    graph.resize();
    graph.zoom(1);
    graph.pan({ x: 0, y: 0 });
    const [width, height] = [graph.width() - 60, graph.height() - 84];
    for (const node of nodes) {
      graph.$id(node.name).position({ x: 30 + node.x * width, y: 46 + node.y * height });
    }
  };
  arrange();
  new ResizeObserver(arrange).observe(canvas);

  graph.on("mouseover mouseout", "edge", (event) => event.target.toggleClass("over", event.type === "mouseover"));

  const slider = figure.querySelector("input[type=range]");
  const shown = figure.dataset.step ? Number(figure.dataset.step) : steps.length - 1;
  const show = (number) => {
    const step = steps[Math.min(number, steps.length - 1)];
    graph.edges().remove();
    graph.add(step.edges.map((edge) => ({
      data: { source: edge.from, target: edge.to, share: edge.share, label: `${(100 * edge.share).toFixed(1)} %` },
    })));
    figure.querySelector(".step").textContent = `iteration ${step.iteration}`;
    slider?.setAttribute("aria-valuetext", `iteration ${step.iteration}`);
    fill(figure.querySelector("tbody"), step);
    const note = figure.querySelector(".figures p");
    if (note) note.textContent = `iteration ${step.iteration}, its first ${step.episodes} episodes`;
  };
  slider?.addEventListener("input", () => show(Number(slider.value)));
  show(shown);
}

function fill(body, step) {
  body?.replaceChildren(...step.edges.map((edge) => {
    const row = document.createElement("tr");
    for (const text of [edge.from, edge.to, `${(100 * edge.share).toFixed(1)}%`]) {
      row.append(Object.assign(document.createElement("td"), { textContent: text }));
    }
    return row;
  }));
}

function style() {
  return [
    { selector: "node", style: {
      label: "data(id)", width: 16, height: 16, "font-size": 11, color: colour("text"),
      "background-color": colour("surface"), "border-color": colour("text"), "border-width": 1.5,
      "text-background-color": colour("surface"), "text-background-opacity": 0.8,
      "text-valign": "top", "text-margin-y": -4, "text-wrap": "ellipsis", "text-max-width": 90 } },
    { selector: "node.ends", style: { "border-color": colour("muted"), "border-style": "dashed", color: colour("muted") } },
    { selector: "node.low", style: { "text-valign": "bottom", "text-margin-y": 4 } },
    { selector: "edge", style: {
      width: "mapData(share, 0, 0.3, 0.5, 9)", "line-color": colour("c0"), opacity: 0.55,
      "curve-style": "bezier", "target-arrow-shape": "triangle", "target-arrow-color": colour("c0"),
      "arrow-scale": 0.8, "loop-direction": "-45deg", "loop-sweep": "-50deg" } },
    { selector: "edge:active, edge.over", style: { label: "data(label)", opacity: 1, "font-size": 11, color: colour("text"), "text-background-color": colour("surface"), "text-background-opacity": 0.9, "text-background-padding": 2 } },
  ];
}
