"use strict";
/* Shows one picture of the flip-book at a time. Without this script, all are below each other. */
(() => {
const pictures = [...document.querySelectorAll(".mu-flipbook figure")];
const slider = document.getElementById("number"), button = document.getElementById("play");
let timer = 0;

function show(number) {
  pictures.forEach((picture, index) => { picture.hidden = index !== number; });
  slider.value = number;
  slider.setAttribute("aria-valuetext", pictures[number].querySelector("figcaption").textContent);
}

function setPlaying(isPlaying) {
  clearInterval(timer);
  timer = isPlaying ? setInterval(() => show((Number(slider.value) + 1) % pictures.length), 700) : 0;
  button.textContent = isPlaying ? "Stop" : "Play";
  button.setAttribute("aria-pressed", String(isPlaying));
}

slider.addEventListener("input", () => { setPlaying(false); show(Number(slider.value)); });
button.addEventListener("click", () => setPlaying(!timer));
show(0);
})();
