// What the page says: toasts with a way back, notes beside the thing they are about.

import { api } from "./api.js";
import { $, el, sentence } from "./dom.js";
import { change } from "./state.js";

const LASTS = 12000; // milliseconds

/** A sentence at the foot of the page. With a revision it can be undone, `steps` times, while that is the newest. */
export function toast(text, revision, steps = 1) {
  const close = () => node.remove();
  const node = el(
    "div",
    { class: "toast" },
    el("span", {}, sentence(text)),
    revision ? el("button", { click: () => (close(), undo(revision, steps)) }, "Undo") : null,
    el("button", { class: "round", "aria-label": "Close this message", click: close }, "×"),
  );
  (document.querySelector("dialog[open]") ?? document.body).append($("toasts")); // behind a dialog nobody reaches it
  $("toasts").replaceChildren(node);
  const fade = () => setTimeout(() => (node.matches(":hover, :focus-within") ? fade() : close()), LASTS);
  fade();
}

/** Takes back the newest changes; the first of them has to be the one the page knows. */
export async function undo(revision, steps = 1) {
  const undone = [];
  try {
    await change(async () => {
      for (let last = revision; undone.length < steps; ) {
        const answer = await api.undo(last);
        undone.push(answer.undone);
        last = answer.revision;
      }
    });
    toast(`taken back: ${undone[0]}`);
  } catch (problem) {
    toast(undone.length ? `taken back in part: the last ${undone.length} of ${steps} changes` : problem.message);
  }
}

/** One line in a box of notes; `kind` is good, wrong or nothing. */
export const note = (text, kind = "") => el("p", { class: `note ${kind}` }, sentence(text));

/** The photos of a problem or of a lesson that could not be used. */
export const wrongPhotos = (photos) => photos.map(({ photo, problem }) => note(`“${photo}” ${problem}`, "wrong"));

export function problemNotes(problem) {
  return problem.photos?.length ? wrongPhotos(problem.photos) : [note(problem.message, "wrong")];
}
