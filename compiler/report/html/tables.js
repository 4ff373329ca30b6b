// The head, the tables, and the first drawing.

const share = (part) => {
  const bar = make("span", percent(part));
  return bar;
};
const rest = (left, what) => left ? `the first; ${some(left, what)} left out` : "";

function showHead() {
  at("name").textContent = DATA.head.model;
  at("line").textContent = DATA.head.line;
  at("tiles").replaceChildren(...DATA.head.tiles.map(([kind, value, name]) =>
    make("div", [make("b", kind === "s" ? seconds(value) : bytes(value)), make("span", name)], "tile")));
  at("notes").textContent = DATA.head.notes.join(" ");
  at("foot").textContent = DATA.head.foot;
}

function showTables() {
  fill(at("costly"), [["time", "number"], ["share", "number"], ["operation", "name"], ["layers", "name"], ["how", "words"]],
    DATA.costly.map((row) => [seconds(row.time_s), share(row.share), `${inWords(row.op)}${row.count > 1 ? ` × ${row.count}` : ""}`, row.layer || row.name, row.text]));
  fill(at("collectives"), [["time", "number"], ["count", "number"], ["kind", ""], ["over", ""], ["bytes", "number"], ["layers", "name"], ["why", "words"]],
    DATA.collectives.rows.map((row) => [seconds(row.time_s * row.count), row.count, inWords(row.kind), row.axes, bytes(row.bytes), row.layers, row.why]));
  at("collectives-about").textContent = DATA.collectives.rows.length ? rest(DATA.collectives.left_out, "row") : "none";
  for (const [id, found] of [["alive", DATA.alive], ["kept", DATA.kept]]) {
    fill(at(id), [["bytes", "number"], ["tensor", "name"], ["kind", ""], ["layer", "name"], ["layout", "name"]],
      found.rows.map((row) => [bytes(row.bytes), row.name, row.kind, row.layer, row.layout]));
    at(`${id}-about`).textContent = `${bytes(found.bytes)}${found.left_out ? `, ${rest(found.left_out, "smaller tensor")}` : ""}`;
  }
}

showHead();
showTables();
new ResizeObserver(later).observe(document.body);
later();
window.addEventListener("beforeprint", () => { for (const draw of drawings) draw(); });
document.documentElement.dataset.ready = "yes";
