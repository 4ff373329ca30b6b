// The graph: layers folded into blocks that unfold into their operations.

const { layouts: LAYOUTS, blocks: BLOCKS } = DATA.graph;
const TEXT = (index) => DATA.strings[index];
const BOX = { width: 138, height: 36, across: 14, down: 24, dummy: 10 };
const NODE = { name: 0, op: 1, layout: 2, time: 3, split: 4, weights: 5, operands: 6, inputs: 7, results: 8 };
const MOVE = { from: 0, to: 1, kind: 2, axes: 3, bytes: 4, time: 5, why: 6 };

const looks = (layout) => LAYOUTS[layout].of;

function showBlocks() {
  const longest = Math.max(...BLOCKS.map((block) => block.time_s * block.count), 1e-12);
  const elements = BLOCKS.map((block, index) => blockOf(block, index, longest));
  const arcs = shape("svg", { id: "arcs", "aria-hidden": "true" });
  at("blocks").replaceChildren(arcs, ...elements);
  if (BLOCKS.length && BLOCKS.length <= 2) elements.forEach((element) => element.querySelector("button").click());
}

function blockOf(block, index, longest) {
  const element = make("div", "", block.count > 1 ? "block many" : "block");
  element.dataset.block = index;
  const title = make("span", [make("span", block.name, "title"), ...(block.count > 1 ? [` × ${block.count}`] : []),
    make("div", [block.phase, some(block.ops, "operation"), block.count > 1 ? "each" : ""].filter(Boolean).join(", ").replace(", each", " each"), "soft")]);
  const strip = make("span", block.strip.map(([layout, part]) => {
    const piece = make("span", "", looks(layout));
    piece.style.flexGrow = part;
    return piece;
  }), "strip");
  strip.style.width = `${Math.max(6, 100 * block.time_s * block.count / longest)}%`;
  strip.title = "layouts of the results, by the time of what makes them";
  const moved = block.communication_s ? `, ${seconds(block.communication_s * block.count)} of it communication` : "";
  const figures = make("span", [`${seconds(block.time_s * block.count)}${moved}`, make("div", block.static_bytes ? `${bytes(block.static_bytes)} kept` : "", "soft")]);
  const button = make("button", [title, strip, figures]);
  button.setAttribute("aria-expanded", "false");
  const body = make("div", "", "body");
  body.hidden = true;
  button.onclick = () => {
    body.hidden = !body.hidden;
    button.setAttribute("aria-expanded", String(!body.hidden));
    if (!body.hidden && !body.childElementCount) unfold(body, block);
    later();
  };
  element.append(button, body);
  return element;
}

function unfold(body, block) {
  if (block.count > 1) body.append(make("p", `${block.members} do the same; this is the first.`, "soft"));
  if (block.left_out) body.append(make("p", `The first ${count(block.nodes.length)} of ${some(block.ops, "operation")}: the others were left out of this file.`, "soft"));
  if (!block.nodes.length) return;
  body.append(drawOperations(block));
}

// Draws operations from top to bottom: by longest path, ordered by what they read.

function drawOperations(block) {
  const graph = layered(block);
  placed(graph);
  const width = Math.max(...graph.items.map((item) => item.x + item.width)) + 12;
  const height = graph.rows.length * (BOX.height + BOX.down) + 24;
  const svg = shape("svg", { width, height, viewBox: `-6 -20 ${width} ${height}`, role: "group", "aria-label": `operations of ${block.name}` });
  for (const edge of graph.edges) svg.append(curveOf(edge, graph));
  for (const edge of graph.edges) if (edge.move) svg.append(pillOf(edge, graph));
  graph.items.forEach((item) => { if (item.node) svg.append(nodeOf(item, block)); });
  return svg;
}

// Returns boxes and edges; an edge over several rows goes through one narrow box in each of them.
function layered(block) {
  const items = block.nodes.map((node, index) => ({ node, index, row: 0, width: BOX.width, x: 0, ins: [], outs: [] }));
  items.forEach((item) => {
    for (const from of item.node[NODE.inputs]) if (from >= 0) item.row = Math.max(item.row, items[from].row + 1);
  });
  const moves = new Map(block.moves.map((move) => [`${move[MOVE.from]} ${move[MOVE.to]}`, move]));
  const edges = [], rows = [];
  const link = (one, two) => { one.outs.push(two); two.ins.push(one); };
  for (const item of [...items]) {
    for (const from of new Set(item.node[NODE.inputs])) {
      if (from < 0) continue;
      const through = [items[from]];
      for (let row = items[from].row + 1; row < item.row; row++) {
        const dummy = { row, width: BOX.dummy, x: 0, ins: [], outs: [] };
        link(through.at(-1), dummy);
        through.push(dummy);
        items.push(dummy);
      }
      link(through.at(-1), item);
      edges.push({ through: [...through, item], move: moves.get(`${from} ${item.index}`) });
    }
    const outside = moves.get(`-1 ${item.index}`);
    if (outside) item.fetched = outside;
  }
  for (const item of items) (rows[item.row] ??= []).push(item);
  return { items, edges, rows };
}

function placed({ rows }) {
  const middle = (item) => item.x + item.width / 2;
  const mean = (others) => others.reduce((sum, other) => sum + middle(other), 0) / others.length;
  rows.forEach((row) => pack(row));
  for (let sweep = 0; sweep < 6; sweep++) {
    const down = sweep % 2 === 0;
    for (const row of down ? rows : [...rows].reverse()) {
      const wish = new Map(row.map((item) => {
        const near = down ? item.ins : item.outs;
        return [item, near.length ? mean(near) : middle(item)];
      }));
      row.sort((one, two) => wish.get(one) - wish.get(two));
      settle(row, wish);
    }
  }
  const least = Math.min(...rows.flat().map((item) => item.x));
  for (const item of rows.flat()) item.x -= least;
}

function pack(row) {
  let x = 0;
  for (const item of row) { item.x = x; x += item.width + BOX.across; }
}

// Places the boxes of a row near their desired positions, in order and without overlap: the mean of a pass from each side.
function settle(row, wish) {
  const want = row.map((item) => wish.get(item) - item.width / 2);
  const from = [...want], to = [...want];
  for (let index = 1; index < row.length; index++) from[index] = Math.max(from[index], from[index - 1] + row[index - 1].width + BOX.across);
  for (let index = row.length - 2; index >= 0; index--) to[index] = Math.min(to[index], to[index + 1] - row[index].width - BOX.across);
  row.forEach((item, index) => { item.x = (from[index] + to[index]) / 2; });
}

const topOf = (item) => item.row * (BOX.height + BOX.down);

function curveOf(edge) {
  const points = edge.through.map((item, index) => {
    const x = item.x + item.width / 2, y = topOf(item);
    return index === 0 ? [[x, y + BOX.height]] : item.node ? [[x, y]] : [[x, y], [x, y + BOX.height]];
  });
  let path = `M${points[0][0].join(" ")}`, [px, py] = points[0][0];
  for (const stop of points.slice(1)) {
    const [x, y] = stop[0], bend = (y - py) / 2;
    path += `C${px} ${py + bend} ${x} ${y - bend} ${x} ${y}`;
    if (stop.length > 1) path += `L${stop[1].join(" ")}`;
    [px, py] = stop.at(-1);
  }
  const kind = edge.move ? ` moved ${kindOf(edge.move)}` : "";
  return shape("path", { class: `edge${kind}`, d: path });
}

const kindOf = (move) => DATA.copies.includes(TEXT(move[MOVE.kind])) ? "copy" : "sent";
const inWords = (kind) => kind.replaceAll("_", "-");

function pillOf(edge) {
  const to = edge.through.at(-1);
  return pill(edge.move, to.x + to.width / 2, topOf(to) - 11);
}

function pill(move, x, y) {
  const text = [inWords(TEXT(move[MOVE.kind])), TEXT(move[MOVE.axes])].filter(Boolean).join(" "), width = text.length * 5.2 + 10;
  const group = shape("g", { class: `pill ${kindOf(move)}`, tabindex: 0, role: "button", "aria-label": `${text}, ${bytes(move[MOVE.bytes])}` },
    shape("rect", { x: x - width / 2, y: y - 7, width, height: 14, rx: 7 }),
    shape("text", { x, y: y + 3.5, "text-anchor": "middle" }, text));
  onPress(group, () => at("node").replaceChildren(make("h3", text), factsOf([
    ["bytes", bytes(move[MOVE.bytes])], ["time", seconds(move[MOVE.time])], ["why", TEXT(move[MOVE.why])]])));
  return group;
}

function nodeOf(item, block) {
  const { node } = item, y = topOf(item), layout = LAYOUTS[node[NODE.layout]];
  const group = shape("g", { class: `node ${layout.of}`, tabindex: 0, role: "button", "aria-label": `${TEXT(node[NODE.op])} ${TEXT(node[NODE.name])}, ${layout.text}` },
    shape("rect", { x: item.x, y, width: item.width, height: BOX.height, rx: 5 }),
    shape("rect", { class: "side", x: item.x, y, width: 7, height: BOX.height, rx: 3 }),
    shape("text", { x: item.x + 13, y: y + 15 }, short(TEXT(node[NODE.op]), 19)),
    shape("text", { class: "under", x: item.x + 13, y: y + 28 }, short(lastOf(TEXT(node[NODE.name])), 21)));
  onPress(group, () => showNode(group, node, block));
  const outside = [...new Set(node[NODE.inputs].filter((from) => from < 0))].map((from) => BLOCKS[-from - 1]?.name).filter(Boolean);
  const parts = shape("g", {}, group);
  if (outside.length && !item.ins.length) parts.append(shape("text", { class: "outside", x: item.x + item.width / 2, y: y - 5, "text-anchor": "middle" }, item.fetched ? "" : short(`from ${outside[0]}`, 24)));
  if (item.fetched) parts.append(pill(item.fetched, item.x + item.width / 2, y - 11));
  return parts;
}

// Returns the last two parts of a name, which distinguish it from its neighbours.
const lastOf = (name) => name.split("/").filter(Boolean).slice(-2).join("/");

function onPress(group, action) {
  group.addEventListener("click", action);
  group.addEventListener("keydown", (key) => {
    if (key.key !== "Enter" && key.key !== " ") return;
    key.preventDefault();
    action();
  });
}

function showNode(group, node, block) {
  document.querySelector(".node.shown")?.classList.remove("shown");
  group.classList.add("shown");
  at("node").replaceChildren(make("h3", `${TEXT(node[NODE.op])} ${TEXT(node[NODE.name])}`), factsOf([
    ["layer", block.name + (block.count > 1 ? `, and ${block.count - 1} identical` : "")], ["phase", block.phase],
    ["split", TEXT(node[NODE.split])], ["reads", TEXT(node[NODE.operands])], ["leaves", TEXT(node[NODE.results])],
    ["weights", TEXT(node[NODE.weights])], ["time", seconds(node[NODE.time])]]));
}

// Arcs from block to block, for reads of results that are not from the previous block.
function drawArcs() {
  const svg = at("arcs"), blocks = [...document.querySelectorAll(".block")];
  if (!svg || !blocks.length) return;
  const origin = at("blocks").getBoundingClientRect().top - at("blocks").scrollTop;
  const height = at("blocks").scrollHeight;
  const heads = blocks.map((block) => block.getBoundingClientRect().top - origin + 22);
  svg.setAttribute("viewBox", `0 0 51 ${height}`);
  svg.style.height = `${height}px`;
  const arcs = [];
  BLOCKS.forEach((block, to) => {
    for (const from of block.reads) {
      if (from >= to - 1 || arcs.length >= 300) continue;
      const reach = Math.min(46, 8 + 5 * Math.log2(to - from) * 1.6), middle = (heads[from] + heads[to]) / 2;
      arcs.push(shape("path", { d: `M51 ${heads[from]}C${51 - reach} ${heads[from]} ${51 - reach} ${heads[from]} ${51 - reach} ${Math.min(heads[from] + reach, middle)}V${Math.max(heads[to] - reach, middle)}C${51 - reach} ${heads[to]} ${51 - reach} ${heads[to]} 51 ${heads[to]}` }));
    }
  });
  svg.replaceChildren(...arcs);
}

at("graph-about").textContent = DATA.graph.about;
legend(at("graph-legend"), [...LAYOUTS.filter((layout) => layout.first).map((layout) => [layout.of, layout.legend]), ["collective", "collective"], ["copy", "local copy"]]);
at("node").replaceChildren(make("p", "Unfold a layer, then pick an operation: here is what it reads, how it is split, and what it costs.", "soft"));
showBlocks();
drawings.push(drawArcs);
