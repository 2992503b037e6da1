// The page put together: views, drop zones, keys, and what is said when the service goes, comes back or is changed.

import { token } from "./api.js";
import * as asking from "./ask.js";
import * as camera from "./camera.js";
import * as classDialog from "./class.js";
import * as classes from "./classes.js";
import { $ } from "./dom.js";
import * as history from "./history.js";
import * as map from "./map.js";
import { chosen, dropped } from "./photos.js";
import { toast } from "./say.js";
import { refresh, noticed, watch, when } from "./state.js";
import * as teaching from "./teach.js";
import * as testing from "./test.js";

const RECEIVERS = {
  ask: (found) => asking.ask(found.map(({ file }) => file)),
  teach: teaching.hold,
  test: testing.test,
};
const VIEWS = { studio: null, map: map.show, test: null, history: history.show };

const view = () => (location.hash.slice(1) in VIEWS ? location.hash.slice(1) : "studio");

function showView() {
  if (location.hash === "#main") return;
  for (const part of document.querySelectorAll("[data-view]")) part.hidden = part.dataset.view !== view();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${view()}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  VIEWS[view()]?.();
}

function receive(zone, found) {
  if (!found.length) return;
  if (zone.dataset.drop === "class") teaching.teach(zone.dataset.class, found.map(({ file }) => file));
  else RECEIVERS[zone.dataset.drop](found);
}

/** A photo that is dropped beside every zone is asked about, and never opened by the browser. */
const zoneOf = (event) => event.target.closest?.("[data-drop]") ?? document.querySelector(`[data-drop=${view() === "test" ? "test" : "ask"}]`);

function listenToDrops() {
  let over = null;
  const mark = (zone) => {
    over?.classList.remove("over");
    over = zone;
    over?.classList.add("over");
  };
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    mark(zoneOf(event));
  });
  document.addEventListener("dragleave", (event) => event.relatedTarget ?? mark(null));
  document.addEventListener("drop", async (event) => {
    event.preventDefault();
    mark(null);
    const zone = zoneOf(event);
    receive(zone, await dropped(event.dataTransfer));
  });
  document.addEventListener("paste", (event) => {
    if (event.clipboardData.files.length && view() === "studio") RECEIVERS.ask(chosen(event.clipboardData.files));
  });
}

function listenToButtons() {
  for (const kind of Object.keys(RECEIVERS)) {
    const input = $(`${kind}-file`);
    document.querySelector(`[data-choose=${kind}]`).addEventListener("click", () => input.click());
    input.addEventListener("change", () => {
      RECEIVERS[kind](chosen(input.files));
      input.value = "";
    });
    const take = (files) => RECEIVERS[kind](files.map((file) => ({ file, folder: null })));
    document.querySelector(`[data-camera=${kind}]`)?.addEventListener("click", () => camera.open(take, kind === "ask"));
  }
}

let asked = false; // for the token; who says "not now" is not asked again and again

function askForToken() {
  $("token").hidden = false;
  if (asked) return;
  asked = true;
  $("token-wrong").hidden = !token.get();
  $("token-dialog").showModal();
}

function listenToTheService() {
  when("gone", () => ($("gone").textContent = "The service does not answer. Nothing is lost: what was taught is in the model file. Trying again …"));
  when("back", () => {
    $("gone").textContent = "";
    toast("the service is back");
  });
  when("elsewhere", (text) => toast(`changed elsewhere: ${text}`));
  when("locked", askForToken);
  when("state", ({ model }) => {
    $("token").hidden = model.token_for === "nothing";
    VIEWS[view()]?.();
  });
  $("token").addEventListener("click", () => $("token-dialog").showModal());
  $("token-close").addEventListener("click", () => $("token-dialog").close());
  $("token-form").addEventListener("submit", () => {
    asked = false;
    token.set($("token-word").value.trim());
    $("token-word").value = "";
    refresh().catch(noticed);
  });
}

for (const part of [asking, teaching, testing, classes, classDialog, history, camera]) part.start();
listenToDrops();
listenToButtons();
listenToTheService();
window.addEventListener("hashchange", showView);
showView();
watch();
