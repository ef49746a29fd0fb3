
  // The timeline: a run on one axis, in lanes. What is seen of it is `state.time`, in microseconds; null for all of it.
  const LANES = ["host", "upload", "device", "readback"], LANE_FILL = { host: "#968caa", upload: "#5a96d2", device: "#968caa", readback: "#46a078" };
  const END = data.timeline ? Math.max(...data.timeline.spans.map((s) => s.end_us), 0) : 0, LEAST = END / 1e5;
  const took = (us) => (us < 1000 ? `${us.toFixed(1)} us` : `${(us / 1000).toFixed(2)} ms`);
  const seen = () => state.time || [0, END];
  const spanName = (s) => (s.call === null ? s.name : data.groups[data.calls[s.call].group].label);
  function look_at(from, to) {
    const width = Math.min(END, Math.max(LEAST, to - from)), start = Math.min(Math.max(0, from), END - width);
    state.time = width >= END ? null : [start, start + width];
    timelineParts();
  }
  function stretchTime(factor, at_) {
    const [from, to] = seen(), middle = at_ === undefined ? (from + to) / 2 : at_;
    look_at(middle - (middle - from) * factor, middle + (to - middle) * factor);
  }
  const moveTime = (part) => { const [from, to] = seen(); look_at(from + part * (to - from), to + part * (to - from)); };
  // Steps of 1, 2 or 5 times a power of ten, some 90 pixels apart.
  function tick(rough) {
    const power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough) || power * 10;
  }
  function timelineChart(width) {
    const [from, to] = seen(), x = (us) => ((us - from) / (to - from)) * width, step = tick(((to - from) * 90) / width), TOP = 20, LANE = 58, HIGH = 36;
    const lanes = LANES.filter((l) => data.timeline.spans.some((s) => s.lane === l)), height = TOP + LANE * lanes.length;
    const svg = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: "chart lanes", id: "timeline-chart", tabindex: 0, "aria-label": "Timeline of a run" });
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
      svg.append(shape("path", { d: `M${x(t)} 0V${height}`, class: "rule" }));
      if (x(t) < width - 55) svg.append(shape("text", { x: x(t) + 3, y: 12 }, step < 1000 && to < 10000 ? `${+t.toFixed(1)} us` : `${+(t / 1000).toFixed(3)} ms`));
    }
    const longest = Math.max(1e-9, ...data.timeline.spans.filter((s) => s.call !== null).map((s) => s.end_us - s.start_us));
    lanes.forEach((lane, k) => {
      const top = TOP + LANE * k;
      svg.append(shape("text", { x: 3, y: top + 11, class: "lane" }, lane), shape("path", { d: `M0 ${top + LANE - 1}H${width}`, class: "rule" }));
      let drawn = -1;
      for (const s of data.timeline.spans) {
        if (s.lane !== lane || s.end_us < from || s.start_us > to) continue;
        const b = Math.min(width + 2, x(s.end_us)), least = s.call === null && !s.waits ? 2 : 0.8;
        // However short, it is seen.
        const a = Math.min(Math.max(-2, x(s.start_us)), width - least);
        // What ends in a pixel that is drawn already is not seen.
        if (b - drawn < 0.25 && b - a < 1) continue;
        drawn = b;
        const group = s.call === null ? null : data.calls[s.call].group, w = Math.max(b - a, least);
        const fill = s.waits ? "none" : group === null ? LANE_FILL[lane] : heat(Math.sqrt((s.end_us - s.start_us) / longest));
        const on = group !== null && data.groups[group].origins.some((o) => state.chosen.has(o));
        const bar_ = shape("rect", { x: a, y: top + 16, width: w, height: HIGH, fill, class: (s.waits ? "waits" : "span") + (on ? " chosen" : ""), ...(s.call === null ? {} : { "data-call": s.call }) });
        bar_.append(shape("title", {}, `${spanName(s)}: ${took(s.end_us - s.start_us)}, from ${took(s.start_us)}`));
        svg.append(bar_);
        if (w > 46) {
          const room = Math.floor((w - 8) / 6.2), name = spanName(s);
          svg.append(shape("text", { x: a + 4, y: top + 16 + HIGH / 2 + 4, class: "name", ...(s.waits ? {} : { style: `fill:${ink(fill)}` }) }, name.length > room ? name.slice(0, Math.max(1, room - 1)) + "…" : name));
        }
      }
    });
    return svg;
  }
  // A drag with the mouse goes to the range, one with a finger moves; the wheel zooms about the pointer.
  function steerTime(svg) {
    let start = null, moved = false, shade = null;
    const place = (e) => e.clientX - svg.getBoundingClientRect().left;
    const us_ = (p) => { const [from, to] = seen(); return from + (p / svg.clientWidth) * (to - from); };
    svg.addEventListener("wheel", (e) => { e.preventDefault(); stretchTime(Math.exp(e.deltaY * 0.0015), us_(place(e))); }, { passive: false });
    svg.addEventListener("pointerdown", (e) => { start = place(e); moved = false; });
    svg.addEventListener("pointermove", (e) => {
      if (start === null || (!moved && Math.abs(place(e) - start) < 4)) return;
      moved = true;
      if (e.pointerType === "touch") return;
      if (!shade) { shade = shape("rect", { y: 0, height: svg.clientHeight, class: "shade" }); svg.append(shade); svg.setPointerCapture(e.pointerId); }
      shade.setAttribute("x", Math.min(start, place(e)));
      shade.setAttribute("width", Math.abs(place(e) - start));
    });
    svg.addEventListener("pointerup", (e) => {
      const [a, b] = start === null ? [0, 0] : [us_(start), us_(place(e))];
      start = null;
      if (!moved) return;
      const [from, to] = seen();
      if (e.pointerType === "touch") look_at(from + a - b, to + a - b);
      else look_at(Math.min(a, b), Math.max(a, b));
    });
    svg.addEventListener("pointercancel", () => { start = null; timelineParts(); });
    svg.addEventListener("click", (e) => {
      const hit = e.target.closest("[data-call]");
      if (moved || !hit) return;
      chooseGroup(data.calls[+hit.dataset.call].group);
    });
    svg.addEventListener("dblclick", () => look_at(0, END));
    svg.addEventListener("keydown", (e) => {
      const act = { ArrowLeft: () => moveTime(-0.25), ArrowRight: () => moveTime(0.25), "+": () => stretchTime(0.5), "-": () => stretchTime(2), "0": () => look_at(0, END) }[e.key];
      if (!act) return;
      e.preventDefault(); e.stopPropagation();
      act();
      at("timeline-chart").focus();
    });
  }
  // Sums over what is seen: of each lane what it does, and how long no kernel runs.
  function timelineSums() {
    const [from, to] = seen(), inside = (s) => Math.max(0, Math.min(to, s.end_us) - Math.max(from, s.start_us));
    const own = data.timeline.spans.filter((s) => inside(s) > 0), kernels = own.filter((s) => s.call !== null && !s.waits);
    const lanes = LANES.map((l) => [l, sum(own.filter((s) => s.lane === l && !s.waits).map(inside))]).filter(([, t]) => t > 0);
    const most = kernels.slice().sort((a, b) => inside(b) - inside(a)).slice(0, 8);
    return [facts([["shown", `${took(from)} to ${took(to)}, ${took(to - from)}`], ["kernels", `${kernels.length} dispatches, ${took(sum(kernels.map(inside)))}`], ...lanes.map(([l, t]) => [l, took(t)]),
      ["no kernel runs", took(Math.max(0, to - from - sum(kernels.map(inside))))]]),
    ...(most.length ? [make("h2", {}, "What takes longest in it"), ...most.map((s) => make("p", { class: "remark" }, chip(spanName(s), () => chooseGroup(data.calls[s.call].group)), ` ${took(inside(s))}`))] : [])];
  }
  function timelineParts() {
    if (!at("timeline")) return;
    const box_ = at("timeline"), svg = timelineChart(Math.max(200, box_.clientWidth));
    steerTime(svg);
    box_.replaceChildren(svg);
    at("timeline-sums").replaceChildren(...timelineSums());
  }
  function timeline() {
    if (!data.timeline || !END) return make("p", { class: "weak" }, "No times here: weft bench MODEL -o F.trace stores a run, and weft report F.trace draws it.");
    const buttons = [["+", () => stretchTime(0.5), "nearer"], ["−", () => stretchTime(2), "farther"], ["◀", () => moveTime(-0.5), "earlier"], ["▶", () => moveTime(0.5), "later"], ["All", () => look_at(0, END), "all of the run"]];
    return make("div", {}, make("p", { class: "weak" }, data.timeline.about),
      make("div", { class: "buttons", id: "timeline-tools" }, ...buttons.map(([title, act, say]) => make("button", { onclick: act, title: say, "aria-label": say }, title))),
      make("div", { id: "timeline" }), make("p", { class: "weak" }, "Drag over a range to go to it, the wheel zooms; on a touch screen a drag moves. Colours of kernels: share of the longest. Outlines are waits; what is empty is a gap."),
      make("div", { id: "timeline-sums" }));
  }
