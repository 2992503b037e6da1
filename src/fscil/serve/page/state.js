// What the page knows of the model, kept fresh: its own changes at once, those of others within two seconds.

import { api, Gone, Refusal } from "./api.js";

const OFTEN = 2000; // milliseconds between two looks at the model
const SELDOM = 15000; // while nobody looks at the page
const TRIES = 5; // to see the model and its classes in the same state

export const state = { model: null, classes: [], none: 0, revision: null };
export const events = new EventTarget();
let changing = 0; // own changes under way
let refreshes = 0;

const tell = (type, detail) => events.dispatchEvent(new CustomEvent(type, { detail }));

/** Calls `listener` with the detail of an event: "state", "gone", "back", "elsewhere", "locked". */
export const when = (type, listener) => events.addEventListener(type, (event) => listener(event.detail));

/**
 * Learns the state of the model; false if it was not seen whole, or if a later call will know better. The page then keeps
 * the state it had: changes that are meant for it are refused, and the next look tries again.
 */
export async function refresh() {
  const mine = (refreshes += 1);
  for (let turn = 0; turn < TRIES; turn += 1) {
    const [model, classes] = await Promise.all([api.model(), api.classes()]);
    if (mine !== refreshes) return false;
    if (model.revision !== classes.revision) continue;
    Object.assign(state, { model, classes: classes.classes, none: classes.none, revision: model.revision });
    tell("state", state);
    return true;
  }
  return false;
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
  if ((await refresh()) && before && !changing) tell("elsewhere", await newest(before));
}

/** What somebody else did last. Only undoing and erasing make the history shorter; a full one stays as long as it is. */
async function newest(before) {
  const { steps, undo } = state.model;
  const back = "a change was taken back";
  if (undo) return steps < before.steps ? back : undo;
  const [step] = (await api.history()).steps; // the newest is final, or there is none
  if (step && steps >= before.steps) return step.text;
  return step?.kind === "erase" ? "something was erased or taken back" : back;
}
