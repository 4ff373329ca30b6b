// One step of one rank, by time: layers, compute, communication, and the memory below.

const ROW = { kind: 0, name: 1, op: 2, layer: 3, phase: 4, start: 5, time: 6, memory: 7, bytes: 8, axes: 9, text: 10, many: 11 };
const KINDS = ["overhead", "op", "collective", "copy"];
const STEP = DATA.timeline.rows, TOTAL = DATA.timeline.total_s;
const PHASED = STEP.some((row) => row[ROW.phase] !== 0);
const LANES = { left: 92, right: 10, phases: [0, 16], layers: [20, 20], compute: [44, 34], communication: [84, 34] };
let view = [0, TOTAL], here = null;

const endOf = (row) => row[ROW.start] + row[ROW.time];
const memoryOf = (row) => row[ROW.memory] + DATA.timeline.beside_bytes;   // 0 for the memory of tensors alone

function drawTimeline() {
  const svg = at("timeline"), { width } = sized(svg);
  const x = (value) => LANES.left + (value - view[0]) / (view[1] - view[0] || 1) * (width - LANES.left - LANES.right);
  const parts = [axisOfTime(x, width, 130)];
  for (const [name, lane] of [...(PHASED ? [["phases", LANES.phases]] : []), ["layers", LANES.layers], ["compute", LANES.compute], ["communication", LANES.communication]]) {
    parts.push(shape("rect", { class: "band", x: LANES.left, y: lane[0], width: width - LANES.left - LANES.right, height: lane[1] }));
    parts.push(shape("text", { x: LANES.left - 8, y: lane[0] + lane[1] / 2 + 4, "text-anchor": "end" }, name));
  }
  if (PHASED) parts.push(...bandsOf((row) => TEXT(row[ROW.phase]), LANES.phases, x, width));
  parts.push(...bandsOf((row) => TEXT(row[ROW.layer]), LANES.layers, x, width), ...blocksOf(x, width));
  if (here !== null) {
    const row = STEP[here];
    const lane = row[ROW.kind] < 2 ? LANES.compute : LANES.communication;
    parts.push(shape("rect", { class: "ring", x: x(row[ROW.start]) - 1, y: lane[0] - 1, width: Math.max(2, x(endOf(row)) - x(row[ROW.start])) + 2, height: lane[1] + 2 }));
  }
  svg.replaceChildren(...parts);
  watch(svg, x, width);
}

function axisOfTime(x, width, y) {
  const group = shape("g", {});
  const [one, unit] = unitOf(SECONDS, view[1] || 1);
  const found = ticks(view[0] / one, view[1] / one, Math.max(2, width / 120));
  for (const tick of found) group.append(shape("text", { x: x(tick * one), y, "text-anchor": "middle" }, `${tick} ${unit}`));
  return group;
}

// Returns a rectangle for each run of entries with the same layer or phase, as wide as its time.
function bandsOf(nameOf, [y, height], x, width) {
  const found = [];
  let run = null;
  const end = () => {
    if (!run) return;
    const from = Math.max(x(run.start), LANES.left), to = Math.min(x(run.end), width - LANES.right);
    if (to - from < 0.4) return;
    found.push(shape("rect", { class: "band", x: from, y, width: to - from, height }));
    const room = Math.floor((to - from - 8) / 6.3);
    if (room >= 3) found.push(shape("text", { x: (from + to) / 2, y: y + height / 2 + 4, "text-anchor": "middle" }, short(run.name, room)));
  };
  for (const row of STEP) {
    if (endOf(row) < view[0] || row[ROW.start] > view[1] || row[ROW.kind] === 0) continue;
    const name = nameOf(row);
    if (run && run.name === name) run.end = endOf(row);
    else {
      end();
      run = { name, start: row[ROW.start], end: endOf(row) };
    }
  }
  end();
  return found;
}

// Returns the rectangles of entries; adjacent entries narrower than a dot share a rectangle.
function blocksOf(x, width) {
  const found = [], last = {};
  for (const row of STEP) {
    const from = x(row[ROW.start]), to = x(endOf(row));
    if (to < LANES.left || from > width - LANES.right || row[ROW.time] === 0) continue;
    const lane = row[ROW.kind] < 2 ? "compute" : "communication", of = KINDS[row[ROW.kind]];
    const before = last[lane];
    if (before && before.of === of && to - before.from < 1.2) { before.to = to; continue; }
    if (before && before.of === of && from - before.to < 0.3 && before.to - before.from < 1.2) { before.to = to; continue; }
    const block = { of, lane, from: Math.max(from, LANES.left), to, row };
    last[lane] = block;
    found.push(block);
  }
  const parts = [];
  for (const block of found) {
    const to = Math.min(Math.max(block.to, block.from + 0.7), width - LANES.right), [y, height] = LANES[block.lane];
    parts.push(shape("rect", { class: `fill ${block.of}`, x: block.from, y: y + 2, width: Math.max(to - block.from - (to - block.from > 3 ? 1 : 0), 0.7), height: height - 4 }));
    const name = inWords(TEXT(block.row[ROW.op])), room = Math.floor((to - block.from - 6) / 6.3);
    if (room >= 4) parts.push(shape("text", { class: "name on", x: (block.from + to) / 2, y: y + height / 2 + 4, "text-anchor": "middle" }, short(name, room)));
  }
  return parts;
}

function drawMemory() {
  const svg = at("memory"), { width, height } = sized(svg);
  const top = 12, bottom = 8, beside = DATA.timeline.beside_bytes, base = beside + DATA.timeline.static_bytes;
  const most = Math.max(...STEP.map(memoryOf), base, 1);
  const [one, unit] = unitOf(BYTES, most);
  const zoomed = base > 0.7 * most ? base - (most - base) * 0.5 : 0;   // transient memory must stay visible
  const x = (value) => LANES.left + (value - view[0]) / (view[1] - view[0] || 1) * (width - LANES.left - LANES.right);
  const y = (value) => height - bottom - (Math.max(value, zoomed) - zoomed) / ((most - zoomed) * 1.06 || 1) * (height - top - bottom);
  const level = (of, from, to) => shape("rect", { class: `fill ${of}`, x: LANES.left, y: from, width: width - LANES.left - LANES.right, height: Math.max(to - from, 0), opacity: 0.75 });
  const parts = [];
  for (const tick of ticks(zoomed / one, most / one, 4)) {
    parts.push(shape("line", { class: "grid", x1: LANES.left, x2: width - LANES.right, y1: y(tick * one), y2: y(tick * one) }));
    parts.push(shape("text", { x: LANES.left - 6, y: y(tick * one) + 4, "text-anchor": "end" }, `${tick} ${unit}`));
  }
  if (zoomed) parts.push(shape("text", { x: LANES.left - 6, y: height - bottom + 4, "text-anchor": "end" }, `from ${bytes(zoomed)}`));
  const clip = shape("clipPath", { id: "inside" }, shape("rect", { x: LANES.left, y: 0, width: width - LANES.left - LANES.right, height }));
  parts.push(clip, level("static", y(base), y(beside)), level("beside", y(beside), height - bottom));
  parts.push(shape("path", { class: "fill transient", "clip-path": "url(#inside)", opacity: 0.75, d: outline(x, y, base) }));
  const peak = STEP[DATA.timeline.peak];
  if (peak && endOf(peak) >= view[0] && peak[ROW.start] <= view[1]) {
    parts.push(shape("line", { class: "ring pick", x1: x(peak[ROW.start]), x2: x(peak[ROW.start]), y1: top, y2: height - bottom }));
    const right = x(peak[ROW.start]) > width / 2;
    parts.push(shape("text", { class: "name", x: x(peak[ROW.start]) + (right ? -5 : 5), y: top + 4, "text-anchor": right ? "end" : "start" }, `peak ${bytes(memoryOf(peak))}`));
  }
  if (here !== null) parts.push(shape("line", { class: "cursor", x1: x(STEP[here][ROW.start]), x2: x(STEP[here][ROW.start]), y1: top, y2: height - bottom }));
  svg.replaceChildren(...parts);
  watch(svg, x, width);
}

// Returns the outline of transient memory, on top of static memory; at most about two corners per dot.
function outline(x, y, base) {
  let path = "", last = -1, high = 0;
  const floor = y(base).toFixed(1);
  STEP.forEach((row, index) => {
    const from = x(row[ROW.start]);
    if (endOf(row) < view[0] || row[ROW.start] > view[1]) return;
    if (path && from - last < 0.5 && memoryOf(row) <= high) return;
    path += `${path ? "" : `M${from.toFixed(1)} ${floor}`}H${from.toFixed(1)}V${y(memoryOf(row)).toFixed(1)}`;
    last = from;
    high = memoryOf(row);
  });
  const end = STEP.length ? x(Math.min(endOf(STEP.at(-1)), view[1])) : 0;
  return path ? `${path}H${end.toFixed(1)}V${floor}Z` : "";
}

function watch(svg, x, width) {
  const timeOf = (event) => {
    const box = svg.getBoundingClientRect();
    return view[0] + ((event.clientX - box.left) - LANES.left) / (width - LANES.left - LANES.right) * (view[1] - view[0]);
  };
  let from = null;
  svg.onpointerdown = (press) => { from = timeOf(press); };
  svg.onpointermove = (move) => goTo(rowAt(timeOf(move)));
  svg.onpointerleave = () => { from = null; };
  svg.onpointerup = (release) => {
    const to = timeOf(release), moved = from !== null && Math.abs(x(to) - x(from)) > 6;
    if (moved) zoom(Math.min(from, to), Math.max(from, to));
    from = null;
  };
}

function rowAt(value) {
  let low = 0, high = STEP.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (endOf(STEP[middle]) < value) low = middle + 1; else high = middle;
  }
  return STEP.length ? low : null;
}

function goTo(index) {
  if (index === null || index === here || !STEP[index]) return;
  here = index;
  const row = STEP[index];
  const parts = [seconds(row[ROW.start]), inWords(TEXT(row[ROW.op])) || KINDS[row[ROW.kind]], TEXT(row[ROW.name]), seconds(row[ROW.time]),
    row[ROW.kind] > 1 ? `${bytes(row[ROW.bytes])}${TEXT(row[ROW.axes]) ? ` over ${TEXT(row[ROW.axes])}` : ""}` : "", `memory ${bytes(memoryOf(row))}`, TEXT(row[ROW.text])];
  const many = row[ROW.many] > 1 ? `${some(row[ROW.many], "operation")} together: ` : "";
  at("step-at").textContent = many + parts.filter(Boolean).join(" · ");
  later();
}

function zoom(from, to) {
  const least = TOTAL / 1e5;
  const long = Math.min(Math.max(to - from, least), TOTAL), start = Math.min(Math.max(from, 0), TOTAL - long);
  view = [start, start + long];
  later();
}

function zoomBy(factor) {
  const middle = here !== null ? STEP[here][ROW.start] + STEP[here][ROW.time] / 2 : (view[0] + view[1]) / 2;
  const long = (view[1] - view[0]) * factor;
  zoom(middle - long / 2, middle + long / 2);
}

at("zoom-in").onclick = () => zoomBy(0.5);
at("zoom-out").onclick = () => zoomBy(2);
at("zoom-all").onclick = () => zoom(0, TOTAL);
at("timeline").onkeydown = (key) => {
  const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 }[key.key];
  if (step) goTo(Math.min(Math.max((here ?? -1) + step, 0), STEP.length - 1));
  else if (key.key === "+" || key.key === "=") zoomBy(0.5);
  else if (key.key === "-") zoomBy(2);
  else if (key.key === "Home") zoom(0, TOTAL);
  else return;
  if (step && here !== null && (STEP[here][ROW.start] < view[0] || endOf(STEP[here]) > view[1])) {
    const long = view[1] - view[0];
    zoom(STEP[here][ROW.start] - long / 2, STEP[here][ROW.start] + long / 2);
  }
  key.preventDefault();
};

at("step-about").textContent = DATA.timeline.about;
legend(at("step-legend"), [["op", "compute"], ["collective", "collective"], ["copy", "local copy"], ["overhead", "overhead"], ...(DATA.timeline.beside_bytes ? [["beside", `beside tensors: ${bytes(DATA.timeline.beside_bytes)}`]] : []), ["static", "static"], ["transient", "transient"]]);
drawings.push(drawTimeline, drawMemory);
