// The live picture of one run. The kernel numbers its messages; whoever misses one asks for all of
// it again, and the first such question tells the kernel that somebody watches.
//
//   full   everything: {n, style, parts, tail, foot, asks}
//   d      what has changed: {n, tail?, more?, parts?, add?, cut?, foot?, asks?}
//
// parts are [place, html, is it a piece of the answer]: finished HTML, made safe by the kernel; add
// appends HTML to one. A tail is text that is still being written, shown as it is; more appends to
// it. asks are the calls that wait for a word.
const SPACING = 30; // milliseconds between two draws, at least

function element(name, classes, text) {
  const made = document.createElement(name);
  if (classes) made.className = classes;
  if (text !== undefined) made.textContent = text;
  return made;
}

function button(text, classes, act) {
  const made = element("button", `pi-btn ${classes || ""}`, text);
  made.type = "button";
  made.addEventListener("click", act);
  return made;
}

// A short stand-in for Markdown until the block is complete: code, bold, headings. Only text nodes
// are made from what a model wrote.
const LONGEST_STYLED = 4000; // characters; a longer tail is shown as it is

function styled(text) {
  const made = document.createDocumentFragment();
  const inline = /(`+)([^`]+)\1|\*\*([^*\n]+)\*\*/g;
  let end = 0;
  for (const found of text.matchAll(inline)) {
    made.append(text.slice(end, found.index));
    made.append(found[2] ? element("code", "", found[2]) : element("strong", "", found[3]));
    end = found.index + found[0].length;
  }
  made.append(text.slice(end));
  return made;
}

function drawTail(tail, text) {
  tail.textContent = "";
  const fence = /^ {0,3}(```+|~~~+)[^\n]*\n?/.exec(text);
  const heading = /^ {0,3}#{1,6} +/.exec(text);
  if (fence) {
    const code = element("pre");
    code.append(element("code", "", text.slice(fence[0].length)));
    tail.append(code);
  } else if (text.length > LONGEST_STYLED) {
    tail.append(text);
  } else if (heading) {
    tail.append(element("strong", "", text.slice(heading[0].length)));
  } else {
    tail.append(styled(text));
  }
}

function controls(send) {
  const row = element("form", "pi-act");
  const box = element("input", "pi-in");
  box.type = "text";
  box.placeholder = "Steer: say what should change…";
  box.setAttribute("aria-label", "steer the agent");
  const sent = element("span", "pi-label");
  sent.setAttribute("role", "status");
  const say = (kind, done) => {
    if (!box.value.trim()) return box.focus();
    send({ t: kind, text: box.value });
    box.value = "";
    sent.textContent = done;
  };
  row.addEventListener("submit", (event) => {
    event.preventDefault();
    say("steer", "steer queued");
  });
  // The notebook's own shortcuts must not act on what is typed here.
  for (const kind of ["keydown", "keyup", "keypress"]) {
    row.addEventListener(kind, (event) => event.stopPropagation());
  }
  row.append(
    box,
    button("After it", "", () => say("follow", "follow-up queued")),
    button("Stop", "pi-stop", () => {
      send({ t: "stop" });
      sent.textContent = "stopping…";
    }),
    sent,
  );
  return row;
}

function question(ask, send) {
  const card = element("div", "pi-ask");
  card.setAttribute("role", "group");
  card.setAttribute("aria-label", `approval of ${ask.name}`);
  card.append(element("b", "", ask.name), element("span", "pi-label", " waits for you"));
  const shown = element("pre", "", ask.args);
  const edit = element("textarea", "pi-edit");
  edit.value = ask.args;
  edit.rows = Math.min(12, ask.args.split("\n").length);
  edit.setAttribute("aria-label", "arguments as JSON");
  edit.hidden = true;
  const reason = element("input", "pi-in");
  reason.placeholder = "Reason, if you deny it";
  reason.setAttribute("aria-label", "reason for denying");
  const answer = (reply) => {
    send({ ...reply, number: ask.number });
    row.querySelectorAll("button").forEach((each) => { each.disabled = true; });
  };
  const problem = element("div", "pi-label");
  problem.setAttribute("role", "alert");
  const approve = () => {
    if (edit.hidden) return answer({ t: "approve" });
    try {
      const parsed = JSON.parse(edit.value);
      if (parsed === null || typeof parsed !== "object" || Array.isArray(parsed)) {
        throw new Error("arguments are an object: {…}");
      }
    } catch (error) {
      problem.textContent = `Not sent: ${error.message}`;
      return edit.focus();
    }
    return answer({ t: "approve", args: edit.value });
  };
  const row = element("div", "pi-act");
  row.append(
    button("Approve", "pi-main", approve),
    button("Deny", "", () => answer({ t: "deny", reason: reason.value })),
    button("Edit arguments", "", (event) => {
      edit.hidden = false;
      shown.hidden = true;
      event.target.hidden = true;
      edit.focus();
    }),
    button(`Always for ${ask.name}`, "", () => answer({ t: "approve", always: true })),
    reason,
  );
  for (const kind of ["keydown", "keyup", "keypress"]) {
    card.addEventListener(kind, (event) => event.stopPropagation());
  }
  card.append(shown, edit, problem, row);
  return card;
}

function render({ model, el }) {
  const send = (content) => model.send(content);
  const page = element("div", "pi pi-run");
  page.setAttribute("role", "group");
  page.setAttribute("aria-label", `agent ${model.get("agent")}`);
  const style = element("style");
  const parts = element("div");
  parts.setAttribute("aria-live", "polite");
  const tail = element("div", "pi-answer pi-tail");
  tail.dir = "auto";
  const caret = element("span", "pi-caret");
  const asks = element("div");
  const foot = element("div");
  page.append(style, parts, tail, asks, controls(send), foot);
  el.append(page);

  let next = -1; // the number of the message that comes next; -1: waiting for all of it
  let text = ""; // of the tail
  tail.append(caret);
  const known = new Map(); // questions by number

  const setPart = (place, html, isAnswer) => {
    while (parts.children.length <= place) parts.append(element("div"));
    const part = parts.children[place];
    part.className = isAnswer ? "pi-answer" : "";
    part.dir = isAnswer ? "auto" : "";
    part.innerHTML = html;
  };
  const setAsks = (list) => {
    const numbers = new Set(list.map((ask) => ask.number));
    for (const [number, card] of known) {
      if (!numbers.has(number)) {
        card.remove();
        known.delete(number);
      }
    }
    for (const ask of list) {
      if (known.has(ask.number)) continue;
      const card = question(ask, send);
      known.set(ask.number, card);
      asks.append(card);
    }
  };
  const apply = (message) => {
    if (message.style !== undefined) style.textContent = message.style;
    if (message.cut !== undefined) {
      while (parts.children.length > message.cut) parts.lastChild.remove();
    }
    for (const [place, html, isAnswer] of message.parts || []) setPart(place, html, isAnswer);
    for (const [place, html] of message.add || []) {
      parts.children[place].insertAdjacentHTML("beforeend", html);
    }
    if (message.tail !== undefined) text = message.tail;
    if (message.more !== undefined) text += message.more;
    if (message.foot !== undefined) foot.innerHTML = message.foot;
    if (message.asks !== undefined) setAsks(message.asks);
  };

  // Messages that come faster than they can be drawn are applied together.
  let waiting = [];
  let timer;
  const draw = () => {
    timer = undefined;
    const now = waiting;
    waiting = [];
    now.forEach(apply);
    drawTail(tail, text);
    // Nothing is being written while a question waits.
    tail.hidden = !text && known.size > 0;
    tail.append(caret);
  };
  const resync = () => {
    next = -1;
    waiting = [];
    send({ t: "ready" });
  };
  const hear = (message) => {
    if (message.t === "full") {
      next = message.n + 1;
      waiting = [{ cut: 0, ...message }];
    } else if (next < 0) {
      return;
    } else if (message.n !== next) {
      return resync();
    } else {
      next += 1;
      waiting.push(message);
    }
    timer ??= setTimeout(draw, SPACING);
  };
  model.on("msg:custom", hear);
  resync();
  return () => {
    clearTimeout(timer);
    model.off("msg:custom", hear);
  };
}

export default { render };
