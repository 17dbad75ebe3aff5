// The live inspector. It takes the place of the saved page in its own output: the notebook file
// holds that page and nothing of this view. The kernel sends data, never HTML; every word of it is
// set as text.
//
//   full    everything: {n, style, label, tabs, tab, foot, blocks, aside, list, find, every}
//   d       what has changed: {n, tabs?, foot?, blocks?, aside?, list?}
//   detail  what a row refers to: {ref, blocks}
//
// blocks and aside are [[place, block], ...] with the number of all blocks as `of`; a block is
// {k: "table" | "note" | "listing" | "chart", ...}. A list is {layout, columns, total, start, rows,
// epoch, at}: `rows` are those in sight; others are asked for when they come in sight.
// A row is [cells, tags, tone, ref, more].
const AHEAD = 15; // rows kept ready above and below those in sight
const LANE = 28;
const BAR = 16;
const SVG = "http://www.w3.org/2000/svg";

function element(name, classes, text) {
  const made = document.createElement(name);
  if (classes) made.className = classes;
  if (text !== undefined) made.textContent = text;
  return made;
}

function drawn(name, values, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(values)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const percent = (share) => `${(share * 100).toFixed(2)}%`;

function initialize({ model }) {
  const send = (message) => model.send(message);
  const root = element("div", "pi-view");
  const style = element("style");
  const tabs = element("div", "pi-tabs");
  tabs.setAttribute("role", "tablist");
  tabs.setAttribute("aria-label", "panels");
  const pane = element("div", "pi-pane");
  pane.setAttribute("role", "tabpanel");
  const two = element("div");
  const main = element("div");
  const side = element("div", "pi-aside");
  const blocks = element("div");
  const bar = element("div", "pi-bar");
  const find = element("input", "pi-find");
  find.type = "search";
  find.placeholder = "Filter: words that an event has…";
  find.setAttribute("aria-label", "filter events");
  const every = element("input");
  every.type = "checkbox";
  const everyLabel = element("label", "");
  everyLabel.append(every, "every delta");
  const counted = element("span", "pi-out");
  counted.setAttribute("role", "status");
  bar.append(find, everyLabel, counted);
  const heading = element("div", "pi-heading");
  const scroll = element("div", "pi-scroll");
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "listbox");
  const space = element("div", "pi-space");
  scroll.append(space);
  const detail = element("div", "pi-detail");
  const aside = element("div");
  main.append(blocks, bar, heading, scroll);
  side.append(detail, aside);
  two.append(main, side);
  pane.append(two);
  const foot = element("div", "pi-foot");
  root.append(style, tabs, pane, foot);
  const unique = `pi-${Math.random().toString(36).slice(2)}`;
  pane.id = `${unique}-pane`;

  // ----------------------------------------------------------------------------- one block
  const linked = (text) => {
    const found = /^#(\d+)/.exec(text);
    if (!found) return document.createTextNode(text);
    const link = element("button", "pi-link", text);
    link.type = "button";
    link.title = `show event ${found[0]}`;
    link.addEventListener("click", (event) => {
      event.stopPropagation();
      send({ t: "event", seq: Number(found[1]) });
    });
    return link;
  };
  const row = (columns, [cells, tags, tone, ref, more]) => {
    const made = element("div", tone ? `pi-r pi-${tone}` : "pi-r");
    columns.forEach(([, kind], place) => {
      const cell = element("div", `pi-${kind}`);
      if (kind === "n") cell.append(linked(cells[place]));
      else cell.textContent = cells[place];
      if (kind === "v") {
        if (!tags.length) cell.title = cells[place];
        for (const [text, shade] of tags) {
          cell.append(" ", element("span", shade ? `pi-tag pi-${shade}` : "pi-tag", text));
        }
        if (more) {
          const fold = element("details", "pi-more");
          const summary = element("summary");
          summary.append(...cell.childNodes);
          fold.append(summary, element("pre", "", more));
          cell.append(fold);
        }
      }
      made.append(cell);
    });
    if (ref !== null) made.dataset.ref = ref;
    return made;
  };
  const head = (layout, columns) => {
    const made = element("div", `pi-l-${layout}`);
    const line = element("div", "pi-r pi-h");
    for (const [title, kind] of columns) line.append(element("div", `pi-${kind}`, title));
    made.append(line);
    return made;
  };
  const table = ({ layout, columns, rows }) => {
    const made = head(layout, columns);
    made.setAttribute("role", "group");
    for (const one of rows) {
      const line = row(columns, one);
      if (one[3] !== null) {
        line.tabIndex = 0;
        line.setAttribute("role", "button");
      }
      made.append(line);
    }
    return made;
  };
  const listing = ({ title, text, diff }) => {
    const made = element("div", "pi-list");
    const pre = element("pre");
    pre.tabIndex = 0;
    if (diff) {
      const kinds = { "+": "pi-add", "-": "pi-del", "@": "pi-at" };
      for (const line of text.split("\n")) pre.append(element("span", kinds[line[0]], line), "\n");
    } else {
      pre.textContent = text;
    }
    made.append(element("div", "pi-of", title), pre);
    return made;
  };
  const chart = ({ title, lanes, bars, ticks }) => {
    const made = element("div");
    const gantt = element("div", "pi-gantt");
    const names = element("div", "pi-lanes");
    for (const name of lanes) names.append(element("div", "", name));
    const plot = element("div", "pi-plot");
    const height = LANE * lanes.length;
    const svg = drawn("svg", { width: "100%", height, role: "img", "aria-label": title });
    const grid = drawn("g", { class: "pi-grid" });
    const axis = element("div", "pi-ticks");
    for (const [at, label] of ticks) {
      grid.append(drawn("line", { x1: percent(at), x2: percent(at), y1: 0, y2: height }));
      const tick = element("span", "", label);
      tick.style.left = percent(at);
      axis.append(tick);
    }
    svg.append(grid);
    for (const [lane, start, end, tone, name, ref] of bars) {
      const made = drawn("rect", {
        class: tone ? `pi-${tone}` : "pi-turn",
        rx: 3,
        x: percent(start),
        y: LANE * lane + (LANE - BAR) / 2,
        width: percent(Math.max(0.002, end - start)),
        height: BAR,
      });
      made.append(drawn("title", {}, name));
      made.addEventListener("click", () => send({ t: "event", seq: ref }));
      svg.append(made);
    }
    plot.append(svg, axis);
    gantt.append(names, plot);
    made.append(gantt, element("p", "pi-out", title));
    return made;
  };
  const note = ({ about, text, tone }) => {
    const made = element("p", tone ? `pi-say pi-${tone}` : "pi-say");
    made.append(element("strong", "", about), ` ${text}`);
    return made;
  };
  const makers = { table, note, listing, chart };
  const made = (block) => makers[block.k](block);
  const setBlocks = (parent, { of, changed }) => {
    while (parent.children.length > of) parent.lastChild.remove();
    for (const [place, block] of changed) {
      const before = parent.children[place];
      if (before) before.replaceWith(made(block));
      else parent.append(made(block));
    }
  };

  // -------------------------------------------------------------------------- the long list
  let list = null; // {layout, columns, total, epoch}
  let known = new Map(); // place -> row
  let lines = new Map(); // place -> its element
  let chosen = -1;
  let asked = "";
  const rowHeight = () => parseFloat(getComputedStyle(scroll).getPropertyValue("--row")) || 29;
  const atEnd = () => scroll.scrollTop + scroll.clientHeight >= scroll.scrollHeight - 4;
  const draw = () => {
    if (!list) return;
    const height = rowHeight();
    space.style.height = `${list.total * height}px`;
    const first = Math.max(0, Math.floor(scroll.scrollTop / height) - AHEAD);
    const inSight = Math.ceil((scroll.clientHeight || 400) / height);
    const last = Math.min(list.total, first + inSight + 2 * AHEAD);
    for (const [place, line] of lines) {
      if (place < first || place >= last) {
        line.remove();
        lines.delete(place);
      }
    }
    let missing = false;
    for (let place = first; place < last; place += 1) {
      const data = known.get(place);
      if (!data) missing = true;
      let line = lines.get(place);
      if (line && line.data === data) {
        line.style.top = `${place * height}px`;
        continue;
      }
      const fresh = data ? row(list.columns, [data[0], data[1], data[2], data[3], ""]) : element("div", "pi-r");
      fresh.data = data;
      fresh.id = `${unique}-${place}`;
      fresh.setAttribute("role", "option");
      fresh.setAttribute("aria-posinset", place + 1);
      fresh.setAttribute("aria-setsize", list.total);
      fresh.setAttribute("aria-selected", place === chosen);
      fresh.classList.toggle("pi-on", place === chosen);
      fresh.dataset.place = place;
      fresh.tabIndex = -1;
      fresh.style.top = `${place * height}px`;
      if (line) line.replaceWith(fresh);
      else space.append(fresh);
      lines.set(place, fresh);
    }
    const wish = `${list.epoch} ${first} ${last} ${atEnd()}`;
    if (wish !== asked) {
      // What is in sight is kept fresh by the kernel, which has to know what that is.
      asked = wish;
      send({ t: "rows", start: first, stop: last, end: atEnd(), missing });
    }
  };
  let frame;
  const soon = () => {
    frame ??= requestAnimationFrame(() => {
      frame = undefined;
      draw();
    });
  };
  const choose = (place, opens = true) => {
    if (!list || place < 0 || place >= list.total) return;
    chosen = place;
    const height = rowHeight();
    if (place * height < scroll.scrollTop) scroll.scrollTop = place * height;
    if ((place + 1) * height > scroll.scrollTop + scroll.clientHeight) {
      scroll.scrollTop = (place + 1) * height - scroll.clientHeight;
    }
    draw();
    for (const [at, line] of lines) {
      line.classList.toggle("pi-on", at === chosen);
      line.setAttribute("aria-selected", at === chosen);
    }
    scroll.setAttribute("aria-activedescendant", `${unique}-${place}`);
    const data = known.get(place);
    if (opens && data && data[3] !== null) send({ t: "detail", ref: data[3] });
  };
  const setList = (given) => {
    if (given === null) {
      list = null;
      heading.textContent = "";
      scroll.hidden = true;
      return;
    }
    const follows = !list || atEnd();
    const fresh = !list || given.epoch !== list.epoch || given.layout !== list.layout;
    if (fresh) {
      known = new Map();
      for (const line of lines.values()) line.remove();
      lines = new Map();
      asked = "";
    }
    if (!list || given.layout !== list.layout || fresh) {
      heading.replaceChildren(head(given.layout, given.columns));
      scroll.className = `pi-scroll pi-l-${given.layout}`;
    }
    scroll.hidden = given.total === 0;
    heading.hidden = scroll.hidden;
    list = given;
    given.rows.forEach(([place, data]) => known.set(place, data));
    space.style.height = `${list.total * rowHeight()}px`;
    if (given.at !== null && given.at !== undefined) {
      scroll.scrollTop = Math.max(0, given.at * rowHeight() - scroll.clientHeight / 2);
      choose(given.at, false);
    } else if (follows || fresh) {
      scroll.scrollTop = scroll.scrollHeight;
    }
    draw();
  };
  scroll.addEventListener("scroll", soon, { passive: true });
  scroll.addEventListener("click", (event) => {
    const line = event.target.closest("[data-place]");
    if (line) choose(Number(line.dataset.place));
  });
  const sizes = new ResizeObserver(soon);
  sizes.observe(scroll);

  // ------------------------------------------------------------------------------- details
  const arrange = () => {
    const beside = detail.childElementCount + aside.childElementCount > 0;
    side.hidden = !beside;
    two.className = beside ? "pi-two" : "";
  };
  const closeDetail = () => {
    detail.textContent = "";
    chosen = -1;
    for (const line of root.querySelectorAll(".pi-on")) line.classList.remove("pi-on");
    arrange();
  };
  const showDetail = ({ blocks: given }) => {
    const close = element("button", "pi-x", "×");
    close.type = "button";
    close.setAttribute("aria-label", "close the details");
    close.addEventListener("click", closeDetail);
    detail.replaceChildren(close, ...given.map(made));
    arrange();
  };
  blocks.addEventListener("click", (event) => {
    const line = event.target.closest("[data-ref]");
    if (!line) return;
    for (const other of blocks.querySelectorAll(".pi-on")) other.classList.remove("pi-on");
    line.classList.add("pi-on");
    send({ t: "detail", ref: Number(line.dataset.ref) });
  });

  // ---------------------------------------------------------------------------- tabs, foot
  let current = "";
  const setTabs = (given) => {
    given.forEach(([name, title, selected], place) => {
      let tab = tabs.children[place];
      if (!tab) {
        tab = element("button");
        tab.type = "button";
        tab.setAttribute("role", "tab");
        tab.setAttribute("aria-controls", pane.id);
        tab.addEventListener("click", () => send({ t: "tab", tab: tab.dataset.tab }));
        tabs.append(tab);
      }
      tab.id = `${unique}-${name}`;
      tab.dataset.tab = name;
      if (tab.textContent !== title) tab.textContent = title;
      tab.setAttribute("aria-selected", selected);
      tab.tabIndex = selected ? 0 : -1;
      if (selected) pane.setAttribute("aria-labelledby", tab.id);
      if (selected && current !== name) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
    });
    while (tabs.children.length > given.length) tabs.lastChild.remove();
  };
  const setFoot = ([tone, words, ...rest]) => {
    foot.textContent = "";
    foot.append(element("span", `pi-state pi-${tone}`, words));
    for (const text of rest) foot.append(element("span", "", text));
    const freeze = element("button", "", "keep as it is");
    freeze.type = "button";
    freeze.title = "close the live view; the saved page stays";
    freeze.addEventListener("click", () => send({ t: "close" }));
    foot.append(freeze);
  };
  let typing;
  const look = () => send({ t: "find", words: find.value, every: every.checked });
  find.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(look, 200);
  });
  every.addEventListener("change", look);

  // ------------------------------------------------------------------------------ messages
  let next = -1;
  const apply = (message) => {
    if (message.style !== undefined) style.textContent = message.style;
    if (message.tabs) setTabs(message.tabs);
    if (message.tab !== undefined && message.tab !== current) {
      current = message.tab;
      list = null;
      closeDetail();
      blocks.textContent = "";
      aside.textContent = "";
    }
    bar.hidden = current !== "events";
    if (message.find !== undefined && document.activeElement !== find) find.value = message.find;
    if (message.every !== undefined) every.checked = message.every;
    if (message.blocks) setBlocks(blocks, message.blocks);
    if (message.aside) setBlocks(aside, message.aside);
    arrange();
    if (message.list !== undefined) setList(message.list);
    if (message.foot) setFoot(message.foot);
    if (list && current === "events") {
      counted.textContent = `${list.total.toLocaleString("en").replaceAll(",", "\u202f")} rows`;
    }
  };
  const hear = (message) => {
    if (message.t === "detail") return showDetail(message);
    if (message.t === "full") {
      next = message.n + 1;
      root.hidden = false;
      if (twin) twin.hidden = true;
    } else if (next < 0) {
      return;
    } else if (message.n !== next) {
      return send({ t: "watch" });
    } else {
      next += 1;
    }
    apply(message);
  };

  // ------------------------------------------------------------------------------ keyboard
  const onKey = (event) => {
    if (!root.contains(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target;
    const done = () => {
      event.preventDefault();
      event.stopPropagation();
    };
    if (event.key === "Escape" && detail.childElementCount) {
      done();
      return closeDetail();
    }
    if (target.getAttribute("role") === "tab") {
      const all = [...tabs.children];
      const place = all.indexOf(target);
      const to = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: all.length - 1 }[event.key];
      if (to === undefined) return;
      done();
      const tab = all[(to + all.length) % all.length];
      tab.focus();
      tab.click();
    } else if (target === scroll) {
      const page = Math.max(1, Math.floor(scroll.clientHeight / rowHeight()) - 1);
      const end = list ? list.total - 1 : 0;
      const from = chosen < 0 ? Math.floor(scroll.scrollTop / rowHeight()) - 1 : chosen;
      const to = {
        ArrowDown: from + 1,
        ArrowUp: from - 1,
        PageDown: Math.min(end, from + page),
        PageUp: Math.max(0, from - page),
        Home: 0,
        End: end,
        Enter: chosen,
      }[event.key];
      if (to === undefined) return;
      done();
      choose(to);
    } else if (target.dataset.ref !== undefined && (event.key === "Enter" || event.key === " ")) {
      done();
      target.click();
    }
  };
  window.addEventListener("keydown", onKey, true); // before the front end's own shortcuts

  // --------------------------------------------- its place: the saved page of the same output
  const name = model.get("mount");
  let host = null;
  let twin = null;
  let seen = false;
  // The kernel sends only while somebody can see it; a cell that is deleted is out of sight, too.
  const sight = new IntersectionObserver((entries) => {
    const now = entries.at(-1).isIntersecting;
    if (now === seen) return;
    seen = now;
    if (!now) next = -1;
    send({ t: now ? "watch" : "rest" });
  });
  let focused = null;
  let lost = 0;
  root.addEventListener("focusin", (event) => {
    focused = event.target;
  });
  root.addEventListener("focusout", () => {
    lost = performance.now();
  });
  const mount = () => {
    if (host?.isConnected) return;
    const found = document.querySelector(`[data-pi-view="${name}"]`);
    if (!found) return;
    const top = scroll.scrollTop;
    const had = focused && performance.now() - lost < 50;
    if (host) sight.unobserve(host);
    host = found;
    twin = host.querySelector(".pi-twin");
    twin.hidden = !root.hidden;
    host.append(root);
    sight.observe(host);
    scroll.scrollTop = top;
    if (had) focused.focus({ preventScroll: true });
  };
  root.hidden = true;
  const places = new MutationObserver(mount);
  places.observe(document.body, { childList: true, subtree: true });
  mount();
  model.on("msg:custom", hear);
  return () => {
    model.off("msg:custom", hear);
    window.removeEventListener("keydown", onKey, true);
    places.disconnect();
    sight.disconnect();
    sizes.disconnect();
    clearTimeout(typing);
    cancelAnimationFrame(frame);
    root.remove();
    if (twin) twin.hidden = false;
  };
}

export default { initialize };
