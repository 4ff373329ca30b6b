// The tasks of every stage of a pipeline by time; empty places are bubbles.

const TASK = { stage: 0, work: 1, batch: 2, chunk: 3, start: 4, end: 5 };
const FILLS = { F: "compute", B: "collective", W: "static" };
const STAGE_HEIGHT = 16;
let task = null;

function drawStages() {
  const svg = at("stages"), lanes = DATA.stages.rows.length;
  svg.setAttribute("height", lanes * STAGE_HEIGHT + 24);
  const { width } = sized(svg);
  const x = (value) => LANES.left + value / (DATA.stages.end_s || 1) * (width - LANES.left - LANES.right);
  const parts = [];
  for (let stage = 0; stage < lanes; stage++) {
    parts.push(shape("rect", { class: "band", x: LANES.left, y: stage * STAGE_HEIGHT, width: width - LANES.left - LANES.right, height: STAGE_HEIGHT }));
    parts.push(shape("text", { x: LANES.left - 8, y: stage * STAGE_HEIGHT + 12, "text-anchor": "end" }, `stage ${stage}`));
  }
  for (const [stage, work, from, to, batch] of runsOf(x)) {
    parts.push(shape("rect", { class: `fill ${FILLS[work]}`, x: from, y: stage * STAGE_HEIGHT + 2, width: Math.max(to - from - (to - from > 4 ? 1 : 0), 0.5), height: STAGE_HEIGHT - 4 }));
    if (batch !== null && to - from > 14) parts.push(shape("text", { class: "name on", x: (from + to) / 2, y: stage * STAGE_HEIGHT + 12, "text-anchor": "middle" }, String(batch)));
  }
  if (task !== null) {
    const row = DATA.stages.tasks[task];
    parts.push(shape("rect", { class: "ring", x: x(row[TASK.start]) - 1, y: row[TASK.stage] * STAGE_HEIGHT + 1, width: x(row[TASK.end]) - x(row[TASK.start]) + 2, height: STAGE_HEIGHT - 2 }));
  }
  const [one, unit] = unitOf(SECONDS, DATA.stages.end_s || 1);
  for (const tick of ticks(0, DATA.stages.end_s / one, Math.max(2, width / 120))) {
    parts.push(shape("text", { x: x(tick * one), y: lanes * STAGE_HEIGHT + 14, "text-anchor": "middle" }, `${tick} ${unit}`));
  }
  svg.replaceChildren(...parts);
  svg.onpointermove = (move) => {
    const box = svg.getBoundingClientRect();
    const stage = Math.floor((move.clientY - box.top) / STAGE_HEIGHT);
    const value = ((move.clientX - box.left) - LANES.left) / (width - LANES.left - LANES.right) * DATA.stages.end_s;
    const found = DATA.stages.tasks.findIndex((row) => row[TASK.stage] === stage && row[TASK.start] <= value && value < row[TASK.end]);
    if (found >= 0) goToTask(found);
  };
}

// Returns the tasks as [stage, work, from, to, micro-batch]; adjacent narrow ones of one work are joined.
function runsOf(x) {
  const found = [];
  for (const row of DATA.stages.tasks) {
    const from = x(row[TASK.start]), to = x(row[TASK.end]), last = found.at(-1);
    const joins = last && last[0] === row[TASK.stage] && last[1] === row[TASK.work] && to - last[2] < 1.2 && from - last[3] < 0.3;
    if (joins) [last[3], last[4]] = [to, null];
    else found.push([row[TASK.stage], row[TASK.work], from, to, row[TASK.batch]]);
  }
  return found;
}

function goToTask(index) {
  const row = DATA.stages.tasks[index];
  if (!row) return;
  task = index;
  at("stages-at").textContent = [`stage ${row[TASK.stage]}`, DATA.stages.works[row[TASK.work]], `micro-batch ${row[TASK.batch]}`, `chunk ${row[TASK.chunk]}`,
    `${seconds(row[TASK.start])} to ${seconds(row[TASK.end])}`, seconds(row[TASK.end] - row[TASK.start])].join(" · ");
  later();
}

function moveTask(key) {
  const tasks = DATA.stages.tasks;
  if (key === "ArrowLeft" || key === "ArrowRight") return goToTask(Math.min(Math.max((task ?? -1) + (key === "ArrowRight" ? 1 : -1), 0), tasks.length - 1));
  const now = tasks[task ?? 0], stage = now[TASK.stage] + (key === "ArrowDown" ? 1 : -1);
  const next = tasks.findIndex((row) => row[TASK.stage] === stage && row[TASK.end] > now[TASK.start]);
  if (next >= 0) goToTask(next);
}

if (DATA.stages) {
  at("stages-section").hidden = false;
  at("stages-about").textContent = DATA.stages.about;
  legend(at("stages-legend"), Object.entries(DATA.stages.works).map(([work, name]) => [FILLS[work], name]));
  at("stages").onkeydown = (key) => {
    if (!key.key.startsWith("Arrow")) return;
    moveTask(key.key);
    key.preventDefault();
  };
  fill(at("stages-table"), [["stage", "number"], ["chunks", ""], ["busy", "number"], ["idle", "number"], ["memory", "number"], ["static", "number"], ["in flight", "number"], ["sends per micro-batch", "number"], ["to", ""]],
    DATA.stages.rows.map((row, stage) => [row.device ? `${stage} (${row.device})` : stage, row.chunks.join(", "), seconds(row.busy_s), seconds(row.idle_s), bytes(row.memory_bytes), bytes(row.static_bytes), bytes(row.kept_bytes), bytes(row.sent_bytes), row.sends_to.join(", ")]));
  drawings.push(drawStages);
}
