// What the pages do by themselves: parts that refresh or are paused, all boxes ticked at once, the
// theme. Without this script all of them work, with a reload in place of the refresh.
"use strict";

const store = {
  get(name) { try { return localStorage.getItem(`oncepool.${name}`); } catch { return null; } },
  set(name, value) { try { localStorage.setItem(`oncepool.${name}`, value); } catch { /* private */ } },
};
const THEMES = ["auto", "light", "dark"];

function showTheme() {
  const theme = THEMES.includes(store.get("theme")) ? store.get("theme") : "auto";
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  const button = document.getElementById("theme");
  if (button) button.textContent = `Theme: ${theme}`;
}
showTheme(); // before anything is drawn

function atWork(live) {
  // Whoever writes, has ticked, opened or marked something is not disturbed.
  const active = document.activeElement;
  if (active && live.contains(active) && active.matches("input, select, textarea")) return true;
  if (live.querySelector("input[type=checkbox]:checked, details[open]")) return true;
  const selection = document.getSelection();
  return Boolean(selection && !selection.isCollapsed && live.contains(selection.anchorNode));
}

function focusPlace(live) {
  const active = document.activeElement;
  if (!active || !live.contains(active)) return null;
  if (active.id) return `#${CSS.escape(active.id)}`;
  const href = active.getAttribute("href");
  return href ? `a[href="${CSS.escape(href)}"]` : null;
}

async function refresh(live, said) {
  if (document.hidden || store.get("paused") === "yes" || atWork(live)) return;
  let answer;
  try {
    answer = await fetch(location.href, {
      headers: { "X-Oncepool-Fragment": "1" }, credentials: "same-origin", redirect: "error",
    });
  } catch {
    said.textContent = "no answer; trying again";
    return;
  }
  if (answer.status === 401) { location.reload(); return; }
  if (!answer.ok) { said.textContent = `no answer (${answer.status}); trying again`; return; }
  const text = await answer.text();
  if (store.get("paused") === "yes" || atWork(live)) return;
  const focus = focusPlace(live);
  live.innerHTML = text; // of our own templates, which escape
  if (focus) live.querySelector(focus)?.focus({ preventScroll: true });
  said.textContent = `as of ${new Date().toISOString().slice(11, 19)} UTC`;
}

function showPaused(button, said) {
  const paused = store.get("paused") === "yes";
  button.textContent = paused ? "Go on refreshing" : "Pause refreshing";
  button.setAttribute("aria-pressed", String(paused));
  if (paused) said.textContent = "paused";
}

function start() {
  showTheme();
  document.getElementById("theme")?.addEventListener("click", () => {
    const now = THEMES.indexOf(store.get("theme") ?? "auto");
    store.set("theme", THEMES[(now + 1) % THEMES.length]);
    showTheme();
  });
  document.addEventListener("change", (event) => {
    const box = event.target;
    if (!box.matches?.("input[data-all]")) return;
    for (const one of document.querySelectorAll("input[name=ids]")) one.checked = box.checked;
  });
  const live = document.querySelector("[data-every]");
  const button = document.getElementById("pause");
  const said = document.getElementById("refreshed");
  if (!live || !button || !said) return;
  button.hidden = false;
  showPaused(button, said);
  button.addEventListener("click", () => {
    store.set("paused", store.get("paused") === "yes" ? "no" : "yes");
    showPaused(button, said);
    refresh(live, said);
  });
  const every = Number(live.dataset.every) * 1000;
  const again = async () => {
    await refresh(live, said);
    setTimeout(again, every);
  };
  setTimeout(again, every);
}

if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
else start();
