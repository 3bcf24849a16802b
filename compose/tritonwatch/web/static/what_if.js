// The What if page: sliders beside the fields, and a new result while the form is edited, without a click.
"use strict";

const form = document.getElementById("what-if");
let waiting = 0;
let asked = 0;

function address() {
  return "/what-if?" + new URLSearchParams(new FormData(form)).toString();
}

// Loads the page that a click on the button would load, and replaces only the result.
async function update() {
  const number = ++asked;
  const result = document.getElementById("result");
  result.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(address(), { headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (number !== asked) return;
    const found = page.getElementById("result");
    if (!found) throw new Error("no result");
    result.replaceChildren(...found.childNodes);
    history.replaceState(null, "", address());
    offerCopy();
  } catch {
    if (number === asked) result.textContent = "The server does not respond. Press Compute to try again.";
  } finally {
    if (number === asked) result.removeAttribute("aria-busy");
  }
}

function soon() {
  clearTimeout(waiting);
  waiting = setTimeout(update, 200);
}

function options(field) {
  return field.list ? [...field.list.options] : [...field.options];
}

function addSlider(field) {
  const stops = options(field).map((one) => one.value);
  if (stops.length < 2) return;
  const slider = document.createElement("input");
  slider.type = "range";
  slider.min = "0";
  slider.max = String(stops.length - 1);
  slider.setAttribute("aria-label", field.closest("label").firstChild.textContent.trim() + ", slider");
  const place = () => {
    const exact = stops.indexOf(field.value);
    const near = stops.findIndex((one) => parseFloat(one) >= parseFloat(field.value));
    slider.value = String(exact >= 0 ? exact : near >= 0 ? near : stops.length - 1);
    slider.setAttribute("aria-valuetext", field.value);
  };
  slider.addEventListener("input", () => {
    field.value = stops[Number(slider.value)];
    slider.setAttribute("aria-valuetext", field.value);
    soon();
  });
  field.addEventListener("input", place);
  place();
  field.closest(".field").append(slider);
}

function offerCopy() {
  const button = document.getElementById("copy");
  if (!button || !navigator.clipboard) return;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById("yaml").textContent);
    document.getElementById("copied").textContent = "Copied.";
  });
}

form.querySelectorAll("[data-slider]").forEach(addSlider);
form.addEventListener("input", (event) => {
  // Another objective has other fields, and other models have other buckets: reload the whole page.
  if (event.target.name === "base" || event.target.name === "models" || event.target.type === "range") return;
  soon();
});
form.elements.base.addEventListener("change", () => form.submit());
offerCopy();
