// A test: a folder of photos whose classes are known; how many are right, and which pairs are confused.

import { api } from "./api.js";
import { $, count, el } from "./dom.js";
import { fileTile, named, portion } from "./photos.js";
import { note, problemNotes, wrongPhotos } from "./say.js";
import { noticed } from "./state.js";

const MOST = 12; // photos shown of a pair
let stopping = null; // the test that runs

/** Tests the model on files in folders that are called like their classes. */
export async function test(found) {
  if (stopping) {
    $("test-notes").replaceChildren(note("a test runs already: wait for it, or stop it, then drop this folder again", "wrong"));
    return;
  }
  const inFolders = found.filter(({ folder }) => folder);
  if (!inFolders.length) {
    $("test-notes").replaceChildren(note("these photos lie in no folder: drop a folder with one folder for each class", "wrong"));
    return;
  }
  const labels = new Map(named(inFolders.map(({ file }) => file)).map((photo, i) => [photo, inFolders[i].folder]));
  const notes = [];
  let result = { results: [] };
  $("score").hidden = true;
  working(new AbortController());
  try {
    for (let rest = [...labels.keys()]; rest.length; ) {
      $("test-progress").value = 1 - rest.length / labels.size;
      const earlier = JSON.stringify(result.results);
      const next = portion(rest, new Blob([earlier]).size); // it grows with every answer, and photos have what is left
      rest = next.rest;
      notes.push(...wrongPhotos(next.wrong));
      if (!next.part.length) continue;
      const truths = next.part.map((photo) => labels.get(photo));
      result = await api.evaluate(next.part, truths, earlier, stopping.signal);
      notes.push(...wrongPhotos(result.unreadable));
    }
  } catch (problem) {
    if (problem.name === "AbortError") notes.push(note("stopped; this is the result so far"));
    else notes.push(...problemNotes(noticed(problem)));
  }
  working(null);
  $("test-notes").replaceChildren(...notes);
  if (result.results.length) show(result, new Map([...labels.keys()].map(({ name, file }) => [name, file])));
}

function working(controller) {
  stopping = controller;
  $("test-running").hidden = !controller;
  $("test-progress").value = 0;
}

function show(result, files) {
  $("score").hidden = false;
  $("score").replaceChildren(...headline(result), ...confusions(result.confused, files), perClass(result.results));
}

function headline({ photos, right, accuracy, accuracy_interval_95: interval, not_sure, taught, strangers, refused }) {
  const lines = [];
  if (photos) {
    const [low, high] = interval.map((bound) => bound.toFixed(0));
    const unsure = not_sure ? ` About ${not_sure} it was not sure.` : "";
    lines.push(
      el("p", { class: "score" }, `${accuracy.toFixed(1)} %`),
      el("p", {}, `${right} of ${count(photos, "photo")} right (95 % interval: ${low} to ${high} %).${unsure}`),
    );
  }
  if (strangers) {
    lines.push(el("p", {}, `${count(strangers, "photo")} of classes that it does not know: to ${refused} it said “not sure”, as it should.`));
  }
  if (taught) lines.push(note(`${count(taught, "photo")} of this test ${taught === 1 ? "was" : "were"} taught, which makes it too easy`));
  return lines;
}

function confusions(confused, files) {
  if (!confused.length) return [];
  const pairs = confused.map(({ truth, said, photos }) =>
    el(
      "li",
      { class: "stack" },
      el("h3", {}, `${truth} taken for ${said}: ${photos.length}`),
      el("ul", { class: "near" }, photos.slice(0, MOST).map((name) => el("li", {}, files.has(name) ? fileTile(files.get(name)) : null, name))),
    ),
  );
  return [el("h2", {}, "Confused"), el("ul", { class: "stack" }, pairs)];
}

function perClass(results) {
  const rows = new Map();
  for (const { truth, said, known, stranger } of results) {
    const row = rows.get(truth) ?? { photos: 0, right: 0, unsure: 0, stranger };
    row.photos += 1;
    row.right += said === truth;
    row.unsure += !known;
    rows.set(truth, row);
  }
  const head = ["Class", "Photos", "Right", "Not sure"].map((text, i) => el("th", { scope: "col", class: i ? "number" : "" }, text));
  const body = [...rows].map(([truth, { photos, right, unsure, stranger }]) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, truth),
      ...[photos, stranger ? "not known" : right, unsure].map((value) => el("td", { class: "number" }, String(value))),
    ),
  );
  return el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, body));
}

export function start() {
  $("test-stop").addEventListener("click", () => stopping?.abort());
}
