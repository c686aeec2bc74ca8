// Puts the parts of the page that have changed in the place of the old ones, as the dashboard tells them.
"use strict";
const told = document.createElement("span");
told.className = "dim";
document.querySelector("nav").append(told);

const signature = (main) => [...main.children].map((child) => child.tagName + child.id).join();

function replacePart(old, fresh) {
  const details = fresh.querySelectorAll("details");
  old.querySelectorAll("details").forEach((each, k) => { if (details[k]) details[k].open = each.open; });
  if (old.outerHTML === fresh.outerHTML) return;
  const scrolled = [...old.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
  const reachable = "a, summary, [tabindex]";
  const focused = [...old.querySelectorAll(reachable)].indexOf(document.activeElement);
  old.replaceWith(fresh);
  fresh.querySelectorAll(".scroll").forEach((each, k) => { each.scrollLeft = scrolled[k] || 0; });
  if (focused >= 0) fresh.querySelectorAll(reachable)[focused]?.focus({ preventScroll: true });
}

const stream = new EventSource("/events" + location.pathname + location.search);
stream.addEventListener("page", (event) => {
  const fresh = new DOMParser().parseFromString(JSON.parse(event.data), "text/html").querySelector("main");
  const main = document.querySelector("main");
  document.title = fresh.querySelector("h1").textContent;
  if (signature(main) !== signature(fresh)) return main.replaceWith(document.adoptNode(fresh));
  [...main.children].forEach((old, k) => replacePart(old, document.adoptNode(fresh.children[0])));
});
stream.addEventListener("checked", () => { told.textContent = "as of " + new Date().toLocaleTimeString(); });
stream.onerror = () => { told.textContent = "the dashboard does not answer; this is from before"; };
