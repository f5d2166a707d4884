// Heads: a line from each token to those that it attends to.
"use strict";

const ROW = 24; // as high as a token, as the style sheet says
const WIDE = 260; // at most; beside tokens, as narrow as can be, there is less
const BESIDE = 250;
const FAINT = 0.01; // lines of less can't be seen, and take most of the time

/** The buttons of a layer's heads. Where one head is shown, they choose it. */
function headButtons(state, single, changed) {
  const attention = current(state);
  const count = attention.heads[state.layer];
  const only = (head) => changed(() => (state.heads = new Set([head])));
  const toggle = (head) =>
    changed(() => state.heads.delete(head) || state.heads.add(head));
  const buttons = [...Array(count).keys()].map((head) => {
    const pressed = single ? head === firstHead(state) : state.heads.has(head);
    const button = element(
      "button",
      {
        id: `head-${head}`,
        class: "head",
        "aria-pressed": String(pressed),
        "aria-label": `head ${head}`,
        title: `head ${head}${single ? "" : "; twice for it alone"}`,
        onclick: ({ detail }) => (single || detail > 1 ? only(head) : toggle(head)),
      },
      String(head),
    );
    button.style.setProperty("--head", headColor(head, count));
    return button;
  });
  const all = () => changed(() => (state.heads = allHeads(state)));
  if (!single) buttons.push(element("button", { id: "all", onclick: all }, "all"));
  return element(
    "div",
    { class: "heads", role: "group", "aria-label": "heads" },
    ...buttons,
  );
}

/** Draws the view of the heads into an element. */
function drawHeadView(main, state, changed) {
  const attention = current(state);
  const canvas = element("canvas", { id: "lines" });
  const sides = ["from", "to"].map((side) =>
    attention[side].map((token, place) => {
      const point = (at) => () => paint((state.pointed = at));
      const here = { side, place };
      return element(
        "button",
        {
          id: `${side}-${place}`,
          class: "token",
          "data-segment": attention[`${side}Segments`][place],
          onmouseenter: point(here),
          onfocus: point(here),
          onmouseleave: point(null),
          onblur: point(null),
          onclick: () => {
            const same = state.pinned?.side === side && state.pinned.place === place;
            state.pinned = same ? null : here;
            paint();
          },
        },
        token || "\ufffd", // a part of a sign of several bytes
      );
    }),
  );
  const paint = () => paintLines(canvas, sides, attention, state);
  main.append(
    headButtons(state, false, changed),
    element(
      "div",
      { class: "threads" },
      element("div", { class: "tokens from" }, ...sides[0]),
      canvas,
      element("div", { class: "tokens to" }, ...sides[1]),
    ),
  );
  paint();
}

function paintLines(canvas, [from, to], attention, state) {
  const room = document.querySelector("main").clientWidth - BESIDE;
  const wide = Math.max(80, Math.min(WIDE, room));
  const context = sized(canvas, wide, ROW * Math.max(from.length, to.length));
  const at = state.pointed ?? state.pinned;
  const count = attention.heads[state.layer];
  const shows = (i, j) =>
    isOfSegments(attention, state.segments, i, j) &&
    (!at || at.place === (at.side === "from" ? i : j));
  context.lineWidth = 2;
  for (const head of state.heads) {
    context.strokeStyle = headColor(head, count);
    for (let i = 0; i < from.length; i++) {
      for (let j = 0; j < to.length; j++) {
        const weight = weightOf(attention, state.layer, head, i, j);
        if (weight < FAINT || !shows(i, j)) continue;
        // A token's lines stand out; those of many heads leave each other room.
        context.globalAlpha = at ? Math.sqrt(weight) : weight / Math.sqrt(state.heads.size);
        context.beginPath();
        context.moveTo(0, (i + 0.5) * ROW);
        context.lineTo(wide, (j + 0.5) * ROW);
        context.stroke();
      }
    }
  }
  for (const [side, tokens] of [["from", from], ["to", to]]) {
    tokens.forEach((token, place) => {
      const { pinned } = state;
      token.classList.toggle("pinned", pinned?.side === side && pinned.place === place);
      if (!at || at.side === side) return shade(token, null);
      const [i, j] = side === "to" ? [at.place, place] : [place, at.place];
      const seen = isOfSegments(attention, state.segments, i, j);
      shade(token, seen ? meanWeight(attention, state.layer, state.heads, i, j) : 0);
    });
  }
}
