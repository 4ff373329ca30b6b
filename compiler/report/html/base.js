"use strict";

// Helpers of the other scripts. Text of the model only ever becomes a text node.

const DATA = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const at = (id) => document.getElementById(id);

function make(tag, content = "", of = "") {
  const element = document.createElement(tag);
  if (Array.isArray(content)) element.append(...content);
  else if (content instanceof Node) element.append(content);
  else element.textContent = content;
  if (of) element.className = of;
  return element;
}

function shape(tag, facts, ...content) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(facts)) element.setAttribute(name, value);
  element.append(...content);
  return element;
}

const digits = (value) => {
  const size = Math.abs(value);
  return value.toFixed(size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
};
const count = (value) => value.toLocaleString("en");
const some = (number, what) => `${count(number)} ${what}${number === 1 ? "" : "s"}`;
const percent = (part) => `${(100 * part).toFixed(part < 0.0995 ? 1 : 0)}%`;

const SECONDS = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
const BYTES = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];
const unitOf = (units, largest) => units.find(([one]) => largest >= one * 0.9995) ?? units.at(-1);

function seconds(value) {
  if (!value) return "0 s";
  const [one, unit] = unitOf(SECONDS, value);
  return `${digits(value / one)} ${unit}`;
}

function bytes(value) {
  const [one, unit] = unitOf(BYTES, value);
  return one === 1 ? `${value} B` : `${digits(value / one)} ${unit}`;
}

const short = (text, length) => text.length <= length ? text : `${text.slice(0, Math.ceil(length / 2) - 1)}…${text.slice(-Math.floor(length / 2))}`;

// Returns round numbers from low to high, about `wanted` of them.
function ticks(low, high, wanted) {
  const raw = (high - low) / wanted || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.72) * power;
  const found = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high + step * 1e-9; index++) found.push(Number((index * step).toPrecision(12)));
  return found;
}

// Returns an axis of figures in `unit`: its ends, its ticks, and the place of a figure from 0 to 1.
function axisOf(values, units) {
  const low = Math.min(...values), high = Math.max(...values);
  const [one, unit] = unitOf(units, high);
  if (low > 0 && high >= 40 * low) return logarithmic(low / 1.15, high * 1.15, one, unit);
  const room = (high - low) * 0.08;
  const from = low === high || low <= 0.4 * high ? 0 : low - room;
  const to = high + room || (high || 1) * 1.15;
  const end = low === high ? (high || 1) * 1.25 : to;
  return {
    unit, ticks: (wanted) => ticks(from / one, end / one, wanted).map((tick) => [tick * one, String(tick)]),
    place: (value) => (value - from) / (end - from),
  };
}

function logarithmic(from, to, one, unit) {
  const place = (value) => Math.log(value / from) / Math.log(to / from);
  const found = [];
  for (let power = Math.floor(Math.log10(from / one)); power <= Math.ceil(Math.log10(to / one)); power++) {
    for (const factor of [1, 2, 5]) {
      const value = factor * 10 ** power * one;
      if (value >= from && value <= to) found.push([value, String(Number((factor * 10 ** power).toPrecision(3)))]);
    }
  }
  return { unit, ticks: () => found, place };
}

// Fills a table; a head is [name, class], a cell text or an element.
function fill(table, heads, rows) {
  const top = make("tr");
  for (const [name, of] of heads) top.append(Object.assign(make("th", name, of), { scope: "col" }));
  const lines = rows.map((cells) => make("tr", cells.map((cell, index) => make("td", cell, heads[index][1]))));
  table.replaceChildren(make("thead", top), make("tbody", lines));
  return lines;
}

// Fills a list of facts; those without a value are left out.
function factsOf(pairs) {
  const list = make("dl");
  for (const [name, value] of pairs) {
    if (value === "" || value === null || value === undefined) continue;
    list.append(make("dt", name), make("dd", value));
  }
  return list;
}

function legend(place, entries) {
  place.replaceChildren(...entries.map(([of, text]) => make("span", [make("span", "", `swatch ${of}`), text])));
}

const sized = (svg) => {
  const box = svg.getBoundingClientRect();
  const width = Math.max(box.width, 240), height = Math.max(box.height, 60);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  return { width, height, left: box.left, scale: width / (box.width || width) };
};

const drawings = [];   // redrawn when the window changes
let waiting = false;
function later() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; for (const draw of drawings) draw(); });
}
