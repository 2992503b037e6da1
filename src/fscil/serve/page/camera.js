// Photos from the camera: in the page where the browser allows it, else through the phone's own camera.

import { $ } from "./dom.js";

let stream = null;
let take = null; // what is done with the photos

/** Opens the camera; `receive` gets the files. */
export async function open(receive, single) {
  if (!navigator.mediaDevices?.getUserMedia) {
    const input = $("shot-file");
    input.onchange = () => (receive([...input.files]), (input.value = ""));
    input.click();
    return;
  }
  take = { receive, single, shots: [] };
  $("camera-notes").textContent = "";
  $("camera-take").disabled = true;
  $("camera-dialog").showModal();
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment", width: { ideal: 1280 } } });
    if (take) $("video").srcObject = stream;
    else finish(); // closed before the camera was there
  } catch {
    $("camera-notes").textContent = "The camera cannot be used: it is missing, or this page may not use it.";
  }
}

async function shoot() {
  const [video, mine] = [$("video"), take];
  const canvas = new OffscreenCanvas(video.videoWidth, video.videoHeight);
  canvas.getContext("2d").drawImage(video, 0, 0);
  const blob = await canvas.convertToBlob({ type: "image/jpeg", quality: 0.92 });
  const moment = new Date().toTimeString().slice(0, 8).replaceAll(":", "-");
  mine.shots.push(new File([blob], `camera ${moment} ${mine.shots.length + 1}.jpg`, { type: "image/jpeg" }));
  if (mine.single) $("camera-dialog").close();
  else $("camera-notes").textContent = `${mine.shots.length} taken`;
}

function finish() {
  stream?.getTracks().forEach((track) => track.stop());
  stream = null;
  $("video").srcObject = null;
  if (take?.shots.length) take.receive(take.shots);
  take = null;
}

export function start() {
  $("video").addEventListener("playing", () => ($("camera-take").disabled = false)); // before, it has no picture
  $("camera-take").addEventListener("click", shoot);
  $("camera-done").addEventListener("click", () => $("camera-dialog").close());
  $("camera-dialog").addEventListener("close", finish);
}
