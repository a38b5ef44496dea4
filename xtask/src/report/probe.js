// Put at the end of a copy of a report by its check: looks at what the page has become, and tells the page around it.
(() => {
  "use strict";
  const root = document.documentElement;
  const isVisible = (element) => element.getClientRects().length > 0;
  const channels = (colour) => (colour.match(/[\d.]+/g) || []).slice(0, 3).map(Number);
  // Relative luminance and contrast as WCAG 2 defines them.
  const luminance = (colour) => {
    const linear = channels(colour).map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  function theme(name) {
    document.getElementById(`theme-${name}`).checked = true;
    const style = getComputedStyle(document.body);
    const [paper, ink] = [luminance(style.backgroundColor), luminance(style.color)];
    const contrast = (Math.max(paper, ink) + 0.05) / (Math.min(paper, ink) + 0.05);
    return { paper, contrast };
  }
  function smallestLetters() {
    const sizes = [...document.querySelectorAll("svg.chart text")].filter(isVisible).map((text) => {
      const scale = text.ownerSVGElement.getBoundingClientRect().width / text.ownerSVGElement.viewBox.baseVal.width;
      return parseFloat(getComputedStyle(text).fontSize) * scale;
    });
    return Math.min(...sizes);
  }
  // The read-out under the arrow keys, and the way from a mark to its records.
  function readOut(chart) {
    chart.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true, cancelable: true }));
    const tip = document.querySelector(".tip");
    return tip !== null && !tip.hidden && tip.textContent !== "";
  }
  function leadsToRecords(chart) {
    const link = chart.querySelector("a[href^='#']");
    const row = link && document.getElementById(link.getAttribute("href").slice(1));
    return link === null || row !== null;
  }
  const figures = [...document.querySelectorAll("figure")];
  const drawn = figures.filter((figure) => figure.querySelector("svg.chart"));
  const charts = [...document.querySelectorAll("svg.chart")].filter(isVisible);
  const findings = {
    width: window.innerWidth,
    overflow: root.scrollWidth - root.clientWidth,
    figures: drawn.length,
    hidden: drawn.filter((figure) => ![...figure.querySelectorAll("svg.chart")].some(isVisible)).map((figure) => figure.id),
    letters_px: charts.length ? smallestLetters() : null,
    silent: charts.filter((chart) => !readOut(chart)).map((chart) => chart.id),
    astray: charts.filter((chart) => !leadsToRecords(chart)).map((chart) => chart.id),
    light: theme("light"),
    dark: theme("dark"),
  };
  window.parent.postMessage(JSON.stringify(findings), "*");
})();
