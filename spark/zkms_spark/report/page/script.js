"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const light = ["#0b6bcb", "#c4561a", "#16794a", "#8e44ad", "#b3261e", "#00838f", "#7a6a00", "#5d4037", "#c2185b", "#455a64", "#558b2f", "#3949ab"];
  const bright = ["#6cb2ff", "#ffa066", "#5fd39a", "#cf9bf0", "#ff8f87", "#4dd0e1", "#e0cf4f", "#c7a79b", "#ff80ab", "#a7bac4", "#aed581", "#9fa8da"];
  const layout = (figure) => {
    const ink = colour("--ink"), line = colour("--line");
    const narrow = window.innerWidth < 640;
    const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, automargin: true };
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink, family: "inherit", size: narrow ? 11 : 13 },
      colorway: dark.matches ? bright : light,
      margin: { l: narrow ? 44 : 60, r: 14, t: 14, b: 40 },
      hovermode: "closest", showlegend: figure.data.length > 1,
      hoverlabel: { bgcolor: colour("--panel"), bordercolor: line, font: { color: ink } },
      legend: { orientation: "h", y: -0.22, font: { size: narrow ? 10 : 12 } },
      xaxis: { ...axis, type: "date", ...(figure.layout.xaxis || {}) },
      yaxis: { ...axis, ...(figure.layout.yaxis || {}) },
    };
  };
  const draw = () => {
    for (const [id, figure] of Object.entries(figures)) {
      const place = document.getElementById(id);
      if (place) Plotly.react(place, figure.data, layout(figure), { responsive: true, displaylogo: false, displayModeBar: false });
    }
    document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn || 0) + 1);
  };
  draw();
  dark.addEventListener("change", draw);
})();
