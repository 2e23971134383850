// The page of an IR dump: passes as diffs that unfold, search over every op, and the kernel beside an attention.
// Functions above `boot` know no document, so that they run in any engine.
"use strict";

const CONTEXT = 2; // unchanged rows kept beside a change or a hit

// Rows of every pass, from its edits: [kind, row number], kind "=", "-" or "+". The first pass is all "=".
function replay(passes) {
  let before = [];
  return passes.map(({ steps }, position) => {
    const rows = [], after = [];
    let at = 0;
    for (const [kind, what] of steps) {
      if (kind === "+") {
        for (const row of what) { rows.push([position ? "+" : "=", row]); after.push(row); }
        continue;
      }
      for (const row of before.slice(at, at + what)) {
        rows.push([kind, row]);
        if (kind === "=") after.push(row);
      }
      at += what;
    }
    before = after;
    return rows;
  });
}

function placeText([file, line, code, module]) {
  return file ? `${file}:${line} ${code} ${module}` : "";
}

function words(query) {
  return query.toLowerCase().split(/\s+/).filter(Boolean);
}

// The numbers of the rows whose text or place holds every word of the query, whatever the case.
function findRows(rows, places, query) {
  const wanted = words(query), found = new Set();
  if (!wanted.length) return found;
  const where = places.map((place) => placeText(place).toLowerCase());
  rows.forEach(([text, place], number) => {
    const low = text.toLowerCase();
    if (wanted.every((word) => low.includes(word) || where[place].includes(word))) found.add(number);
  });
  return found;
}

// What of a pass is shown: [from, to, folded] runs. Changes and hits are, with context; so is what `opened` covers.
function runs(rows, hits, opened) {
  const shown = new Array(rows.length).fill(false);
  rows.forEach(([kind, row], i) => {
    if (kind === "=" && !hits.has(row)) return;
    shown.fill(true, Math.max(0, i - CONTEXT), Math.min(rows.length, i + CONTEXT + 1));
  });
  for (const [from, to] of opened) shown.fill(true, from, to);
  const found = [];
  for (let from = 0; from < rows.length;) {
    let to = from;
    while (to < rows.length && shown[to] === shown[from]) to++;
    const folded = !shown[from] && to - from > 1; // a fold of one row would hide nothing
    found.push([from, to, folded]);
    from = to;
  }
  return found;
}

// `text` cut into [piece, marked] pairs at every occurrence of a word.
function marked(text, wanted) {
  if (!wanted.length) return [[text, false]];
  const low = text.toLowerCase(), flags = new Array(text.length).fill(false);
  for (const word of wanted) {
    for (let at = low.indexOf(word); at >= 0; at = low.indexOf(word, at + 1)) flags.fill(true, at, at + word.length);
  }
  const pieces = [];
  for (let from = 0; from < text.length;) {
    let to = from;
    while (to < text.length && flags[to] === flags[from]) to++;
    pieces.push([text.slice(from, to), flags[from]]);
    from = to;
  }
  return pieces;
}

// The name of the value a row defines where the row is an attention, else "".
function attentionOf(text) {
  const match = /^%("[^"]*"|[\w.]+): .* = attn\.attention\(/.exec(text.split("\n", 1)[0]);
  return match ? match[1].replaceAll('"', "") : "";
}

function boot(document) {
  const data = JSON.parse(document.getElementById("data").textContent);
  const find = document.getElementById("find"), foundText = document.getElementById("found");
  const state = { query: "", hits: new Set(), list: [], current: -1 };
  const passes = [];

  function element(tag, name, ...children) {
    const made = document.createElement(tag);
    if (name) made.className = name;
    made.append(...children);
    return made;
  }

  function withMarks(text) {
    return marked(text, words(state.query)).map(([piece, is]) => (is ? element("mark", "", piece) : piece));
  }

  function rowElement(pass, index) {
    const [kind, number] = pass.rows[index], [text, place] = data.rows[number];
    const [file, line, code, module] = data.places[place];
    const made = element("div", `row ${{ "=": "", "+": "add", "-": "del" }[kind]}`);
    const op = element("pre", "", ...withMarks(text));
    const known = kind !== "-" && pass.graph.attentions[attentionOf(text)];
    if (known) {
      const button = element("button", "", "kernel");
      button.addEventListener("click", () => read(known));
      op.append(" ", button);
    }
    const source = element("span", "source");
    if (file) {
      source.append(...withMarks(`${file.split("/").pop()}:${line}`), " ", element("b", "", ...withMarks(code)));
      if (module) source.append(" ", ...withMarks(module));
      source.title = `${file}:${line}\n${code}\n${module}`;
    }
    made.append(element("span", "", { "=": "", "+": "+", "-": "−" }[kind]), op, source);
    made.dataset.index = index;
    return made;
  }

  function render(pass) {
    pass.drawn = true;
    const parts = [];
    for (const [from, to, folded] of runs(pass.rows, state.hits, pass.opened)) {
      if (!folded) {
        for (let i = from; i < to; i++) parts.push(rowElement(pass, i));
        continue;
      }
      const button = element("button", "fold", `⋯ ${to - from} ${pass.position ? "unchanged " : ""}rows`);
      button.addEventListener("click", () => { pass.opened.push([from, to]); render(pass); });
      parts.push(button);
    }
    pass.body.replaceChildren(...parts);
  }

  // Draw what is open, forget what is closed: a big model has many rows in many passes.
  function refresh() {
    for (const pass of passes) {
      if (pass.details.open) render(pass);
      else { pass.drawn = false; pass.body.replaceChildren(); }
    }
  }

  function search(query) {
    state.query = query;
    state.hits = findRows(data.rows, data.places, query);
    state.list = [];
    state.current = -1;
    const counts = [];
    for (const pass of passes) {
      const before = state.list.length;
      pass.rows.forEach(([kind, row], index) => {
        if (kind !== "-" && state.hits.has(row)) state.list.push([pass, index]);
      });
      const count = state.list.length - before;
      if (count) counts.push(`${pass.label} ${count}`);
      if (count && words(query).length) pass.details.open = true;
    }
    foundText.textContent = !words(query).length ? "" : counts.length ? counts.join(" · ") : "nothing found";
    refresh();
    try { window.history.replaceState(null, "", query ? `#q=${encodeURIComponent(query)}` : "#"); } catch { /* file: */ }
  }

  function go(by) {
    if (!state.list.length) return;
    state.current = (state.current + by + state.list.length) % state.list.length;
    const [pass, index] = state.list[state.current];
    if (!pass.details.open) { pass.details.open = true; render(pass); }
    for (const old of document.querySelectorAll(".row.current")) old.classList.remove("current");
    const row = pass.body.querySelector(`[data-index="${index}"]`);
    row.classList.add("current");
    row.scrollIntoView({ block: "center" });
  }

  // The attention's site, mask and certificate, and its kernel, at the side.
  function read(known) {
    const aside = document.getElementById("side"), close = element("button", "", "close");
    close.addEventListener("click", () => { aside.hidden = true; document.body.classList.remove("reading"); });
    const site = document.getElementById(known.site), kernel = document.getElementById(known.kernel);
    aside.replaceChildren(close);
    if (site) {
      const about = element("div", "wide");
      about.append(...[...site.querySelectorAll(".about")].map((node) => node.cloneNode(true)));
      for (const inner of about.querySelectorAll("details")) inner.open = true;
      aside.append(about);
    }
    aside.append(element("h2", "", kernel ? kernel.querySelector("summary").textContent : "no kernel"));
    if (kernel) aside.append(element("pre", "kernel", kernel.querySelector("pre").textContent));
    aside.hidden = false;
    document.body.classList.add("reading");
  }

  for (const graph of data.graphs) {
    const home = document.getElementById(graph.id);
    replay(graph.passes).forEach((rows, position) => {
      const { label, ops } = graph.passes[position];
      const [added, gone] = ["+", "-"].map((kind) => rows.filter(([k]) => k === kind).length);
      const change = !position ? `${ops} ops` : added || gone ? `${ops} ops, +${added} −${gone}` : "no change";
      const details = element("details", "pass"), body = element("div", "");
      details.append(element("summary", "", element("h3", "", label), " ", element("span", "dim", change)), body);
      details.open = Boolean(position && (added || gone));
      const pass = { label, position, rows, details, body, graph, opened: [], drawn: false };
      details.addEventListener("toggle", () => { if (details.open && !pass.drawn) render(pass); });
      passes.push(pass);
      home.append(details);
    });
  }

  let typing;
  find.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => search(find.value), 120);
  });
  find.addEventListener("keydown", (event) => { if (event.key === "Enter") go(event.shiftKey ? -1 : 1); });
  document.getElementById("next").addEventListener("click", () => go(1));
  document.getElementById("previous").addEventListener("click", () => go(-1));
  document.getElementById("unfold").addEventListener("click", () => {
    for (const pass of passes) { pass.opened = [[0, pass.rows.length]]; pass.details.open = true; }
    refresh();
  });
  document.getElementById("fold").addEventListener("click", () => {
    for (const pass of passes) { pass.opened = []; pass.details.open = false; }
    refresh();
  });
  for (const link of document.querySelectorAll("[data-find]")) {
    link.addEventListener("click", () => { find.value = link.dataset.find; search(find.value); go(1); });
  }
  const asked = /^#q=(.*)$/.exec(window.location.hash);
  if (asked) { find.value = decodeURIComponent(asked[1]); search(find.value); go(1); } else refresh();
}

if (typeof document !== "undefined") boot(document);
if (typeof module !== "undefined") module.exports = { replay, findRows, runs, marked, attentionOf };
