// What the page knows of the model, kept fresh: its own changes at once, those of others within two seconds.

import { api, Gone, Refusal } from "./api.js";

const OFTEN = 2000; // milliseconds between two looks at the model
const SELDOM = 15000; // while nobody looks at the page

export const state = { model: null, classes: [], none: 0, revision: null };
export const events = new EventTarget();
let changing = 0; // own changes under way

const tell = (type, detail) => events.dispatchEvent(new CustomEvent(type, { detail }));

/** Calls `listener` with the detail of an event: "state", "gone", "back", "elsewhere", "locked". */
export const when = (type, listener) => events.addEventListener(type, (event) => listener(event.detail));

export async function refresh() {
  const [model, classes] = await Promise.all([api.model(), api.classes()]);
  Object.assign(state, { model, classes: classes.classes, none: classes.none, revision: model.revision });
  tell("state", state);
}

/** Makes a change and shows what came of it; a change that came too late reloads the page's knowledge first. */
export async function change(make) {
  changing += 1;
  try {
    return await make(state.revision);
  } catch (problem) {
    if (problem instanceof Refusal && problem.status === 412) {
      problem.message = "somebody else changed the model meanwhile, so nothing was done; the page is up to date again";
    }
    throw noticed(problem);
  } finally {
    await refresh().catch(noticed);
    changing -= 1;
  }
}

/** Tells the page that the service is gone or wants a token; gives the problem back. */
export function noticed(problem) {
  if (problem instanceof Gone) lost();
  if (problem instanceof Refusal && problem.status === 401) tell("locked");
  return problem;
}

let gone = false;

function lost() {
  if (!gone) tell("gone");
  gone = true;
}

/** Looks at the model again and again. */
export async function watch() {
  if (!changing) await look().catch(noticed);
  setTimeout(watch, document.hidden ? SELDOM : gone ? OFTEN / 2 : OFTEN);
}

async function look() {
  const model = await api.model(AbortSignal.timeout(10 * OFTEN)).catch((problem) => {
    throw problem.name === "TimeoutError" ? new Gone() : problem;
  });
  if (gone) tell("back");
  gone = false;
  if (model.revision === state.revision || changing) return;
  const before = state.model;
  await refresh();
  if (!before) return;
  const grown = state.model.steps > before.steps;
  tell("elsewhere", grown ? (await api.history()).steps[0].text : "a change was taken back");
}
