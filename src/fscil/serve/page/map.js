// The map of classes: what lies close together looks alike.

import { api } from "./api.js";
import { $, count, el, percent, svg } from "./dom.js";
import { note, problemNotes } from "./say.js";
import { noticed } from "./state.js";

const EDGE = 60; // pixels around the map, for names

export async function show() {
  try {
    const { classes, share } = await api.map();
    $("map-notes").replaceChildren(...(classes.length < 2 ? [note("a map needs two classes or more")] : []));
    $("map").replaceChildren(...(classes.length < 2 ? [] : [drawing(classes, $("map").clientWidth), closest(classes, share)]));
  } catch (problem) {
    $("map-notes").replaceChildren(...problemNotes(noticed(problem)));
  }
}

/** A map as wide as its place, so that names keep their size. */
function drawing(classes, room) {
  const [width, height] = [Math.max(300, room - 40), room < 600 ? 480 : 560];
  const at = ({ x, y }) => [width / 2 + x * (width / 2 - EDGE), height / 2 - y * (height / 2 - EDGE)];
  const taken = []; // boxes of dots and of names: middle, half the width, half the height
  const dots = classes.map((one) => {
    const [[x, y], r] = [at(one), 4 + Math.min(6, Math.sqrt(one.photos))];
    taken.push([x, y, r, r]);
    return svg("circle", { cx: x, cy: y, r });
  });
  const names = classes.map((one) => {
    const [x, y] = at(one);
    return svg("text", { x, y: free(taken, x, y, one.class.length * 4), "text-anchor": "middle" }, one.class);
  });
  const title = svg("title", {}, "Map of the classes; the closest pairs are listed below");
  const map = svg("svg", { class: "map", viewBox: `0 0 ${width} ${height}`, role: "img" }, title, ...dots, ...names);
  return el("div", { class: "panel sheet" }, map);
}

/** A height near a dot at which a name covers no other name and no dot. */
function free(taken, x, y, half) {
  for (const height of [y - 15, y + 25, y - 30, y + 40, y - 45, y + 55]) {
    const middle = height - 5; // of the letters, which stand on their line
    if (taken.some(([left, top, wide, high]) => Math.abs(left - x) < wide + half && Math.abs(top - middle) < high + 8)) continue;
    taken.push([x, middle, half, 8]);
    return height;
  }
  return y - 15;
}

function closest(classes, share) {
  const pairs = classes
    .flatMap((a, i) => classes.slice(i + 1).map((b) => [Math.hypot(a.x - b.x, a.y - b.y), a.class, b.class]))
    .sort(([a], [b]) => a - b)
    .slice(0, 5);
  return el(
    "div",
    { class: "stack" },
    el("h3", {}, "Closest on this map"),
    el("ul", {}, pairs.map(([, a, b]) => el("li", {}, `${a} and ${b}`))),
    el("p", { class: "quiet small" }, `A flat map shows ${percent(share)} of the differences between ${count(classes.length, "class")}.`),
  );
}
