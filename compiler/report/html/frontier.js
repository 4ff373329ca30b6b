// The frontier: time against memory, hover, pick.

const POINTS = DATA.frontier.points;
const MEMORY = (point) => point.process_bytes;
const BESIDE = (point) => point.process_bytes - point.static_bytes - point.transient_bytes;
const WHOLE = POINTS.some(BESIDE);   // memory is that of processes, not of tensors alone
const MESHES = [...new Set(POINTS.map((point) => point.mesh))].sort((one, two) => one.localeCompare(two, "en", { numeric: true }));
const ofMesh = (mesh) => `c${MESHES.indexOf(mesh) % 8}`;
const PICKED = POINTS.findIndex((point) => point.index === DATA.frontier.picked);
let shown = PICKED, hovered = null;

const brief = (point) => `point ${point.index}${point.marks.length ? ` (${point.marks.join(", ")})` : ""}: mesh ${point.mesh}, ` +
  `${seconds(point.time_s)}, ${bytes(MEMORY(point))}`;

function drawFrontier() {
  const svg = at("frontier"), { width, height } = sized(svg);
  const left = 56, right = 14, top = 12, bottom = 36;
  const across = axisOf(POINTS.map(MEMORY), BYTES), up = axisOf(POINTS.map((point) => point.time_s), SECONDS);
  const x = (value) => left + across.place(value) * (width - left - right);
  const y = (value) => height - bottom - up.place(value) * (height - top - bottom);
  const parts = [];
  for (const [value, text] of up.ticks(6)) {
    parts.push(shape("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }));
    parts.push(shape("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, text));
  }
  for (const [value, text] of across.ticks(Math.max(3, width / 110))) {
    parts.push(shape("line", { class: "grid", x1: x(value), x2: x(value), y1: top, y2: height - bottom }));
    parts.push(shape("text", { x: x(value), y: height - bottom + 14, "text-anchor": "middle" }, text));
  }
  parts.push(shape("text", { x: width - right, y: height - 4, "text-anchor": "end" }, `${WHOLE ? "process" : "tensor"} memory per device (${across.unit})`));
  parts.push(shape("text", { x: 4, y: top + 2, transform: `rotate(-90 10 ${height / 2}) translate(${-height / 2 + 60} ${height / 2 - top})` }, `time per step (${up.unit})`));
  const places = POINTS.map((point) => [x(MEMORY(point)), y(point.time_s)]);
  parts.push(shape("path", { class: "steps", d: staircase(places) }));
  POINTS.forEach((point, index) => {
    const [cx, cy] = places[index];
    const radius = POINTS.length > 150 ? 3.2 : 4.5;
    const above = point.marks.includes("above capacity") ? " above" : "";
    const dot = shape("circle", { class: `point fill ${ofMesh(point.mesh)}${above}`, cx, cy, r: hovered === index ? radius + 2 : radius, "data-point": index });
    parts.push(dot);
  });
  rings(parts, places);
  parts.push(...labels(places, { left, top, right: width - 2, bottom: height - bottom }));
  svg.replaceChildren(...parts);
  svg.onpointermove = (move) => hoverPoint(nearest(svg, places, move));
  svg.onpointerleave = () => hoverPoint(null);
  svg.onclick = (click) => showPoint(nearest(svg, places, click));
}

function staircase(places) {
  const ordered = [...places].sort((one, two) => one[0] - two[0]);
  let least = 0;   // of the times so far; in SVG, y grows downwards
  return ordered.map(([x, y], index) => {
    least = Math.max(least, y);
    return index ? `H${x.toFixed(1)}V${least.toFixed(1)}` : `M${x.toFixed(1)} ${least.toFixed(1)}`;
  }).join("");
}

function rings(parts, places) {
  const knee = POINTS.findIndex((point) => point.names.includes("knee"));
  for (const [index, of, r] of [[knee, "", 8], [PICKED, "pick", 10], [shown, "shown", 13]]) {
    if (index < 0 || (of === "shown" && index === PICKED)) continue;
    parts.push(shape("circle", { class: `ring ${of}`, cx: places[index][0], cy: places[index][1], r }));
  }
}

// Returns the labels that fit; named points have priority.
function labels(places, frame) {
  const order = [...POINTS.keys()].sort((one, two) => POINTS[two].names.length - POINTS[one].names.length || spread(one) - spread(two));
  const taken = places.map(([x, y]) => [x - 3, y - 3, x + 3, y + 3]);
  const found = [];
  for (const index of order) {
    const names = POINTS[index].names, text = `${POINTS[index].index}${names.length ? ` ${names.join(", ")}` : ""}`;
    if (!names.length && found.length > 40) break;
    const [x, y] = places[index], long = text.length * 6.2, gap = names.length ? 14 : 6;
    for (const [dx, dy] of [[gap, -3], [-gap - long, 14], [-long / 2, -gap - 2], [-gap - long, -3], [gap, 14], [2 * gap, -20]]) {
      const box = [x + dx, y + dy - 9, x + dx + long, y + dy + 2];
      const free = names.length ? taken.slice(POINTS.length) : taken;
      if (box[0] < frame.left || box[2] > frame.right || box[1] < 0 || box[3] > frame.bottom) continue;
      if (free.some((other) => box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3])) continue;
      taken.push(box);
      found.push(shape("text", { x: x + dx, y: y + dy, class: names.length ? "name" : "" }, text));
      break;
    }
  }
  return found;
}

// Orders numbers by their reversed bits, so that any prefix is evenly spread.
function spread(index) {
  let value = 0;
  for (let bit = 0; bit < 12; bit++) if (index & (1 << bit)) value |= 1 << (11 - bit);
  return value;
}

function nearest(svg, places, event) {
  const box = svg.getBoundingClientRect();
  const px = event.clientX - box.left, py = event.clientY - box.top;
  let best = null, least = 60 ** 2;
  places.forEach(([x, y], index) => {
    const far = (x - px) ** 2 + (y - py) ** 2;
    if (far < least) { least = far; best = index; }
  });
  return best;
}

function hoverPoint(index) {
  if (index === hovered) return;
  hovered = index;
  at("frontier-at").textContent = index === null ? "" : brief(POINTS[index]);
  drawFrontier();
}

function showPoint(index) {
  if (index === null || index === undefined) return;
  shown = index;
  showFacts();
  for (const [number, line] of rowsOfPoints.entries()) line.setAttribute("aria-selected", number === index);
  drawFrontier();
}

function showFacts() {
  const point = POINTS[shown], base = POINTS[PICKED];
  const against = (value, other) => value === other ? "" : ` (${value > other ? "+" : "−"}${percent(Math.abs(value - other) / (other || 1))})`;
  const pairs = [
    ["mesh", point.mesh], ["recomputes", point.recompute],
    ["time", seconds(point.time_s) + against(point.time_s, base.time_s)],
    ["compute", seconds(point.compute_s)], ["communication", seconds(point.communication_s)],
    ["memory", bytes(MEMORY(point)) + against(MEMORY(point), MEMORY(base))],
    ["static", bytes(point.static_bytes)], ["transient", bytes(point.transient_bytes)],
    ["beside tensors", WHOLE ? bytes(BESIDE(point)) : ""],
  ];
  const title = `Point ${point.index}${point.marks.length ? `: ${point.marks.join(", ")}` : ""}`;
  at("facts").replaceChildren(make("h3", title), factsOf(pairs), ...changes(point));
}

// Returns the differences of a point from the picked one.
function changes(point) {
  if (point.index === DATA.frontier.picked) {
    return [make("p", "This point was picked: everything below describes it. Percentages compare with it.", "soft")];
  }
  if (!point.changes) return [make("p", `Not compared with point ${DATA.frontier.picked}: ${DATA.frontier.uncompared}.`, "soft")];
  const found = [make("h3", `Instead of what point ${DATA.frontier.picked} does`)];
  if (!point.changes.length && !point.others) return [...found, make("p", "Every operation is split in the same way; only layouts between operations, or the mesh, differ.", "soft")];
  const table = make("table");
  fill(table, [["operations", ""], ["layers", "name"], ["", "words"]], point.changes.map((change) =>
    [change.count > 1 ? `${change.count} ${change.op}` : change.op, change.layer, `${change.after}, not ${change.before}`]));
  const rest = (point.left_out ?? 0) + point.others;
  return [...found, make("div", table, "wide low"), ...(rest ? [make("p", `and ${count(rest)} more operation${rest === 1 ? "" : "s"}`, "soft")] : [])];
}

let rowsOfPoints = [];
function tablePoints() {
  const ways = POINTS.some((point) => point.recompute);
  const heads = ["index", ...(ways ? ["recomputes"] : []), "mesh", "time", "compute", "communication", "memory", "static", "transient", ...(WHOLE ? ["beside tensors"] : [])];
  rowsOfPoints = fill(at("points"), [...heads.map((name) => [name, "number"]), ["", ""]], POINTS.map((point) => [
    point.index, ...(ways ? [point.recompute] : []), point.mesh, seconds(point.time_s), seconds(point.compute_s),
    seconds(point.communication_s), bytes(MEMORY(point)), bytes(point.static_bytes), bytes(point.transient_bytes), ...(WHOLE ? [bytes(BESIDE(point))] : []), point.marks.join(", ")]));
  rowsOfPoints.forEach((line, index) => {
    line.className = "row";
    line.onclick = () => showPoint(index);
  });
}

at("frontier").onkeydown = (key) => {
  const from = hovered ?? shown;
  const to = { ArrowRight: from - 1, ArrowLeft: from + 1, Home: 0, End: POINTS.length - 1 }[key.key];
  if (to !== undefined) hoverPoint(Math.min(Math.max(to, 0), POINTS.length - 1));
  else if (key.key === "Enter" || key.key === " ") showPoint(from);
  else return;
  key.preventDefault();
};

at("frontier-about").textContent = DATA.frontier.about;
legend(at("frontier-legend"), MESHES.map((mesh) => [ofMesh(mesh), `mesh ${mesh}`]));
tablePoints();
showPoint(PICKED);
drawings.push(drawFrontier);
