// History: the last changes, the newest first, and a way back.

import { api } from "./api.js";
import { $, el, sentence } from "./dom.js";
import { problemNotes, undo } from "./say.js";
import { noticed, state, when } from "./state.js";

export async function show() {
  try {
    const { steps } = await api.history();
    $("steps").replaceChildren(...steps.map(step));
  } catch (problem) {
    $("steps").replaceChildren(el("li", {}, ...problemNotes(noticed(problem))));
  }
}

function step({ when: moment, text, undoable }, position) {
  const back = position === 0 && undoable;
  return el(
    "li",
    {},
    el("time", {}, moment),
    el("span", {}, sentence(text)),
    back ? el("button", { class: "final", click: () => undo(state.revision) }, "Undo") : null,
    undoable ? null : el("span", { class: "final quiet small" }, "cannot be undone"),
  );
}

export function start() {
  const button = $("undo");
  button.addEventListener("click", () => undo(state.revision));
  when("state", ({ model }) => {
    button.disabled = !model.undo;
    button.title = model.undo ? `Take back: ${model.undo}` : "There is nothing to take back";
  });
}
