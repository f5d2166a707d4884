// What is chosen, by mouse or by keys, and the views that show it.
"use strict";

const VIEWS = { heads: drawHeadView, model: drawModelView, neurons: drawNeuronView };
const THEMES = ["system", "dark", "light"];
const HELP =
  "Keys: 1, 2, 3 change the view; ↑ ↓ the layer; ← → the head; [ ] the query; " +
  "a takes all heads. Layers and heads count from 0. Click a token to keep its lines.";

const state = {
  view: "heads",
  text: 0,
  kind: 0,
  layer: 0,
  heads: new Set(),
  segments: "",
  query: 0,
  pointed: null, // a token under the mouse, or with the focus
  pinned: null,
  layerFilter: "",
  headFilter: "",
};

function current({ text, kind }) {
  return TEXTS[text].attentions[kind];
}

function allHeads(state) {
  return new Set(Array(current(state).heads[state.layer]).keys());
}

function firstHead(state) {
  return [...state.heads][0] ?? [...allHeads(state)][0];
}

/** Draws all anew after a change. What has the focus keeps it. */
async function changed(change) {
  change?.();
  const attention = current(state);
  await load(attention);
  // In order, as lines are drawn one over the other.
  state.heads = new Set([...allHeads(state)].filter((head) => state.heads.has(head)));
  if (!segmentPairs(attention).includes(state.segments)) state.segments = "";
  const focused = document.activeElement;
  const caret = focused?.selectionStart;
  state.pointed = null;
  document.querySelector("header").replaceChildren(...controls(attention));
  const main = document.querySelector("main");
  main.replaceChildren();
  VIEWS[state.view](main, state, changed);
  main.append(element("p", { class: "note" }, HELP));
  const again = focused?.id && document.getElementById(focused.id);
  if (again && again !== document.activeElement) {
    again.focus({ preventScroll: true });
    if (caret != null) again.setSelectionRange?.(caret, caret);
  }
  document.body.dataset.ready = "true";
}

function controls(attention) {
  const tabs = Object.keys(VIEWS).map((view) =>
    element(
      "button",
      {
        id: `view-${view}`,
        "aria-pressed": String(state.view === view),
        onclick: () => changed(() => (state.view = view)),
      },
      view,
    ),
  );
  const numbers = attention.heads.map((_, layer) => [layer, `layer ${layer}`]);
  const pairs = segmentPairs(attention).map((pair) => [pair, pair.replace(" ", " → ")]);
  const letter = (label) => label.replace(/\d/g, (n) => String.fromCharCode(65 + +n));
  const named = pairs.map(([pair, label]) => [pair, letter(label)]);
  const choices = [
    choice("text", TEXTS.map(({ title }, k) => [k, `${k + 1}: ${title}`])),
    choice("kind", TEXTS[state.text].attentions.map(({ name }, k) => [k, name])),
    choice("segments", named.length ? [["", "all segments"], ...named] : []),
    state.view === "model" ? "" : choice("layer", numbers),
  ];
  return [
    element("nav", { "aria-label": "views" }, ...tabs),
    ...choices,
    element("button", { id: "theme", onclick: nextTheme }, `colours: ${theme()}`),
  ];
}

/** A list to choose from, or nothing where there is no choice. */
function choice(name, options) {
  if (options.length < 2) return "";
  const onchange = ({ target }) =>
    changed(() => {
      state[name] = name === "segments" ? target.value : +target.value;
      if (name === "segments") return;
      if (name === "text") state.kind = 0;
      if (name !== "layer") Object.assign(state, { layer: 0, pinned: null, query: 0 });
      state.heads = allHeads(state);
    });
  const made = options.map(([value, label]) =>
    element("option", { value, selected: String(value) === String(state[name]) }, label),
  );
  return element("select", { id: name, "aria-label": name, onchange }, ...made);
}

function theme() {
  return document.documentElement.dataset.theme ?? THEMES[0];
}

function nextTheme() {
  const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
  if (next === THEMES[0]) delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  changed();
}

/** What a key does, or nothing. */
function actionOf(key) {
  const attention = current(state);
  const around = (value, step, count) => (value + step + count) % count;
  const step = { ArrowUp: -1, ArrowDown: 1, ArrowLeft: -1, ArrowRight: 1, "[": -1, "]": 1 }[key];
  const view = Object.keys(VIEWS)[key - 1];
  if (view) return () => (state.view = view);
  if (key === "a") return () => (state.heads = allHeads(state));
  if (key === "ArrowUp" || key === "ArrowDown") {
    return () => {
      const all = state.heads.size === allHeads(state).size;
      state.layer = around(state.layer, step, attention.heads.length);
      if (all) state.heads = allHeads(state);
    };
  }
  if (key === "ArrowLeft" || key === "ArrowRight") {
    const count = attention.heads[state.layer];
    const next = state.heads.size === 1 ? around(firstHead(state), step, count) : 0;
    return () => (state.heads = new Set([next]));
  }
  if (key === "[" || key === "]") {
    return () => {
      state.query = around(state.query, step, attention.from.length);
      state.pinned = { side: "from", place: state.query };
    };
  }
  return null;
}

document.addEventListener("keydown", (event) => {
  const other = event.ctrlKey || event.metaKey || event.altKey;
  if (other || event.target.matches("select, input")) return;
  const action = actionOf(event.key);
  if (!action) return;
  event.preventDefault();
  changed(action);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => changed());
window.addEventListener("resize", () => state.view === "heads" && changed());
changed(() => (state.heads = allHeads(state)));
