// Plotly draws SVG with colours of its own, so the page's are handed to it again when they change.
function colours(printing) {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  return printing
    ? { ink: "#1c1f24", line: "#d5d9e0", page: "#ffffff" }
    : { ink: of("--ink"), line: of("--line"), page: of("--page") };
}

function painted(layout, printing) {
  const { ink, line, page } = colours(printing);
  const changes = {
    "font.color": ink,
    "font.family": "system-ui, sans-serif",
    "modebar.bgcolor": "rgba(0,0,0,0)",
    "modebar.color": line,
    "modebar.activecolor": ink,
    "hoverlabel.bgcolor": page,
    "hoverlabel.bordercolor": line,
    "hoverlabel.font.color": ink,
    "hoverlabel.align": "left",
  };
  for (const axis of Object.keys(layout).filter((key) => /^[xy]axis/.test(key))) {
    changes[axis + ".gridcolor"] = changes[axis + ".linecolor"] = line;
    changes[axis + ".tickcolor"] = line;
  }
  return changes;
}

const boxes = [...document.querySelectorAll(".chart")];

function paint(printing) {
  for (const box of boxes) Plotly.relayout(box, painted(box.layout, printing));
}

// Named one by one, because plotly's own choice has a button that sends the chart to a server.
const buttons = [["toImage", "zoom2d", "pan2d", "resetScale2d"]];

for (const box of boxes) {
  const { data, layout } = JSON.parse(box.nextElementSibling.textContent);
  const config = { responsive: true, displaylogo: false, modeBarButtons: buttons };
  Plotly.newPlot(box, data, layout, config).then(() => Plotly.relayout(box, painted(layout, false)));
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => paint(false));
addEventListener("beforeprint", () => paint(true));
addEventListener("afterprint", () => paint(false));
