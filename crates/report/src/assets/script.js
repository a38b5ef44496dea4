// Values under the pointer, or under the arrow keys. The page is complete without this.
(() => {
  "use strict";
  const SVG = "http://www.w3.org/2000/svg";
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("role", "status");
  tip.hidden = true;
  document.body.append(tip);
  let shown = null;

  const isVisible = (element) => element.getClientRects().length > 0;
  const xOf = (mark) => Number(mark.dataset.x);

  // The marks a chart can point at now, hidden series left out, and the places along x they stand at.
  function marksOf(chart) {
    const marks = [...chart.querySelectorAll("[data-x]")].filter((mark) => mark.matches(".bar") || isVisible(mark));
    const stops = [...new Set(marks.map(xOf))].sort((a, b) => a - b);
    return { marks, stops };
  }

  // One mark of each series: at the very place in a chart of columns, else the nearest.
  function near(chart, marks, x) {
    if (chart.dataset.mode === "column") {
      return marks.filter((mark) => xOf(mark) === x);
    }
    const bySeries = new Map();
    for (const mark of marks) {
      const series = mark.closest(".series");
      const best = bySeries.get(series);
      if (!best || Math.abs(xOf(mark) - x) < Math.abs(xOf(best) - x)) bySeries.set(series, mark);
    }
    return [...bySeries.values()];
  }

  function row(list, mark, withPlace) {
    const name = document.createElement("dt");
    name.textContent = mark.dataset.name || mark.closest(".series").dataset.name;
    const style = getComputedStyle(mark);
    let colour = mark.matches(".hollow") ? style.stroke : style.fill;
    if (colour.startsWith("url")) colour = getComputedStyle(document.documentElement).getPropertyValue("--o-client");
    name.style.setProperty("--mark", colour);
    const value = document.createElement("dd");
    value.textContent = mark.dataset.value;
    list.append(name, value);
    if (mark.dataset.range) {
      const range = document.createElement("span");
      range.className = "range";
      range.textContent = ` (${mark.dataset.range})`;
      value.append(range);
    }
    if (!withPlace) return;
    const place = document.createElement("dd");
    place.textContent = `at ${mark.dataset.at}`;
    list.append(place);
  }

  function fill(chart, chosen) {
    const sameColumn = chart.dataset.mode === "column";
    const list = document.createElement("dl");
    list.classList.toggle("placed", !sameColumn);
    const visible = chosen.filter((mark) => !mark.matches('.bar[height="0"]'));
    // Bars read from the top down, as they are stacked.
    const ordered = chosen[0].matches(".bar") ? visible.reverse() : visible;
    for (const mark of ordered) row(list, mark, !sameColumn);
    tip.replaceChildren();
    if (sameColumn) {
      const head = document.createElement("b");
      head.textContent = `${chart.dataset.column} ${chosen[0].dataset.at}`;
      tip.append(head);
    }
    tip.append(list);
  }

  // Beside the crosshair, on the side with more room, never off the page. Past saturation lines run high
  // and bars before it are low: there is room at the foot of lines and above bars.
  function place(chart, x) {
    const box = chart.getBoundingClientRect();
    const left = box.left + (x / chart.viewBox.baseVal.width) * box.width;
    const room = document.documentElement.clientWidth;
    tip.style.transform = "none";
    const size = tip.getBoundingClientRect();
    const wanted = left > room / 2 ? left - size.width - 16 : left + 16;
    const clamped = Math.max(8, Math.min(wanted, room - size.width - 8));
    const scale = box.height / chart.viewBox.baseVal.height;
    const top = Number(chart.dataset.top) * scale;
    const foot = Number(chart.dataset.bottom) * scale - size.height - 8;
    const down = box.top + (chart.querySelector(".bar") ? top : Math.max(top, foot));
    tip.style.transform = `translate(${clamped + window.scrollX}px, ${down + window.scrollY}px)`;
  }

  function hide() {
    if (!shown) return;
    shown.cross.remove();
    for (const mark of shown.chosen) mark.classList.remove("near");
    tip.hidden = true;
    shown = null;
  }

  function show(chart, stop) {
    if (shown && shown.chart === chart && shown.stop === stop) return;
    hide();
    const { marks } = marksOf(chart);
    const chosen = near(chart, marks, stop);
    if (!chosen.length) return;
    const cross = document.createElementNS(SVG, "path");
    cross.setAttribute("class", "cross");
    cross.setAttribute("d", `M${stop} ${chart.dataset.top}V${chart.dataset.bottom}`);
    chart.insertBefore(cross, chart.querySelector(".series, .bar"));
    for (const mark of chosen) mark.classList.add("near");
    shown = { chart, stop, cross, chosen };
    fill(chart, chosen);
    tip.hidden = false;
    place(chart, stop);
  }

  function nearestStop(stops, x) {
    return stops.reduce((best, stop) => (Math.abs(stop - x) < Math.abs(best - x) ? stop : best));
  }

  function onPointer(event) {
    const chart = event.currentTarget;
    const { stops } = marksOf(chart);
    if (!stops.length) return;
    const box = chart.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
    show(chart, nearestStop(stops, x));
  }

  function onKey(event) {
    const chart = event.currentTarget;
    const { stops } = marksOf(chart);
    const at = shown && shown.chart === chart ? stops.indexOf(shown.stop) : -1;
    const last = stops.length - 1;
    const next = { ArrowRight: Math.min(at + 1, last), ArrowLeft: Math.max(at - 1, 0), Home: 0, End: last }[event.key];
    if (event.key === "Escape") hide();
    const link = shown && shown.chart === chart && shown.chosen[0].closest("a");
    if (event.key === "Enter" && link) location.hash = link.getAttribute("href");
    if (next === undefined || !stops.length) return;
    event.preventDefault();
    show(chart, stops[next]);
  }

  // A mark leads to its row in a table that may be folded away.
  function reveal() {
    const row = document.getElementById(location.hash.slice(1));
    const folded = row && row.closest("details");
    if (!folded) return;
    folded.open = true;
    row.scrollIntoView({ block: "center" });
  }

  for (const chart of document.querySelectorAll("svg.chart")) {
    // A title element would pop up over the values; its words stay as the chart's name.
    const title = chart.querySelector("title");
    const description = chart.querySelector("desc");
    chart.removeAttribute("aria-labelledby");
    chart.setAttribute("aria-label", title.textContent);
    chart.setAttribute("aria-describedby", description.id);
    title.remove();
    chart.tabIndex = 0;
    chart.addEventListener("pointermove", onPointer);
    chart.addEventListener("pointerdown", onPointer);
    chart.addEventListener("pointerleave", hide);
    chart.addEventListener("keydown", onKey);
    chart.addEventListener("blur", hide);
  }
  document.addEventListener("change", hide);
  window.addEventListener("resize", hide);
  window.addEventListener("hashchange", reveal);
  reveal();
})();
