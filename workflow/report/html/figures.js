// The interactive figures. Each plot is data and axes without any place; where a panel stands, how the theme
// colours it and what the buttons say is decided here, for the width that there is.
{
    const NARROW = 640;
    const plots = report.plots;

    const unpack = async () => {
        const packed = document.getElementById("library").textContent;
        const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
        const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
        const script = document.createElement("script");
        script.textContent = await new Response(stream).text();
        document.head.append(script);
        if (!window.Plotly) throw new Error("the library did not run");
    };

    const themed = () => {
        const style = getComputedStyle(document.documentElement);
        const value = (name) => style.getPropertyValue("--" + name).trim();
        return { ink: value("ink"), soft: value("soft"), line: value("line"), paper: value("paper"), warn: value("warn-ink") };
    };

    // Traces name colours of the palette; ink and paper are the theme's.
    const coloured = (value, theme) => {
        if (value === "@ink") return theme.ink;
        if (value === "@soft") return theme.soft;
        if (value === "@paper") return theme.paper;
        if (value === "@warn") return theme.warn;
        if (Array.isArray(value)) return value.map((part) => coloured(part, theme));
        if (value && typeof value === "object") {
            return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, coloured(part, theme)]));
        }
        return value;
    };

    const layoutOf = (plot, width, theme) => {
        const columns = width < NARROW ? 1 : plot.columns;
        const count = plot.panels.length;
        const rows = Math.ceil(count / columns);
        const heights = Array.from({ length: rows }, (_, r) => Math.max(...plot.panels.slice(r * columns, (r + 1) * columns).map((p) => p.height)));
        const gap = plot.shared_x ? 34 : 84;
        const area = heights.reduce((a, b) => a + b, 0) + gap * (rows - 1);
        const legend = plot.legend_rows * (width < NARROW ? 3 : 1) * 22;
        const top = 88, bottom = 66 + legend; // above: buttons, then the source's name, then the panel's title
        const layout = {
            height: area + top + bottom,
            width,
            margin: { t: top, b: bottom, l: plot.left, r: plot.right, autoexpand: true },
            paper_bgcolor: "rgba(0,0,0,0)",
            plot_bgcolor: "rgba(0,0,0,0)",
            font: { color: theme.ink, size: 12, family: getComputedStyle(document.body).fontFamily },
            hoverlabel: { bgcolor: theme.paper, bordercolor: theme.soft, font: { color: theme.ink }, namelength: -1, align: "left" },
            hovermode: "closest",
            ...(plot.traces.some((trace) => trace.type === "bar") ? { barmode: "overlay" } : {}),
            dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
            uirevision: "kept",
            showlegend: true,
            legend: { orientation: "h", x: 0, xanchor: "left", y: -(56 / area), yanchor: "top", font: { size: 11 }, groupclick: "togglegroup" },
            modebar: { color: theme.soft, activecolor: theme.ink, bgcolor: "rgba(0,0,0,0)" },
            annotations: [],
            shapes: [],
        };
        const across = 0.075;
        let down = 0;
        plot.panels.forEach((panel, place) => {
            const row = Math.floor(place / columns), column = place % columns;
            const tail = place === 0 ? "" : String(place + 1);
            const wide = (1 - across * (columns - 1)) / columns;
            if (column === 0) down = heights.slice(0, row).reduce((a, b) => a + b, 0) + gap * row;
            const common = { gridcolor: theme.line, linecolor: theme.soft, zerolinecolor: theme.line, showline: true, ticks: "outside", tickcolor: theme.soft, automargin: true };
            const last = row === rows - 1;
            layout["xaxis" + tail] = {
                ...common, ...panel.x,
                domain: [column * (wide + across), column * (wide + across) + wide],
                anchor: "y" + tail,
                ...(plot.shared_x && place > 0 ? { matches: "x" } : {}),
                ...(plot.shared_x && !last ? { showticklabels: false, title: { text: "" } } : {}),
            };
            layout["yaxis" + tail] = {
                ...common, ...panel.y,
                domain: [Math.max(0, 1 - (down + heights[row]) / area), 1 - down / area],
                anchor: "x" + tail,
            };
            if (panel.title) {
                layout.annotations.push({ text: panel.title, xref: `x${tail} domain`, yref: `y${tail} domain`, x: 0, y: 1, xanchor: "left", yanchor: "bottom", showarrow: false, font: { size: 12 } });
            }
            for (const level of panel.levels || []) {
                layout.shapes.push({ type: "line", xref: `x${tail} domain`, yref: "y" + tail, x0: 0, x1: 1, y0: level.at, y1: level.at, line: { color: coloured(level.colour, theme), width: 1.4, dash: "dash" } });
                layout.annotations.push({ text: level.text, xref: `x${tail} domain`, yref: "y" + tail, x: level.right ? 1 : 0, xanchor: level.right ? "right" : "left", y: level.at, yanchor: "bottom", showarrow: false, font: { size: 11, color: theme.ink } });
            }
            for (const span of panel.spans || []) {
                layout.shapes.push({ type: "rect", xref: "x" + tail, yref: `y${tail} domain`, x0: span.from, x1: span.to, y0: 0, y1: 1, fillcolor: theme.soft, opacity: 0.12, line: { width: 0 }, layer: "below" });
            }
        });
        // The names of figure and source stay in the picture when it is saved.
        if (width >= NARROW) layout.annotations.push({ text: `<b>${plot.title}</b>`, xref: "paper", yref: "paper", x: 0, y: 1, xanchor: "left", yanchor: "bottom", yshift: 60, showarrow: false, font: { size: 13 } });
        if (plot.banner) {
            layout.annotations.push({ text: `<b>${plot.banner}</b>`, name: "banner", xref: "paper", yref: "paper", x: 1, y: 1, xanchor: "right", yanchor: "bottom", yshift: 26, showarrow: false, font: { size: 11, color: "#ffffff" }, bgcolor: "#B00020", borderpad: 3 });
        }
        return layout;
    };

    const tracesOf = (plot, theme) => plot.traces.map(({ panel, ...trace }) => {
        const tail = panel === 0 ? "" : String(panel + 1);
        return coloured({ ...trace, xaxis: "x" + tail, yaxis: "y" + tail }, theme);
    });

    const config = () => {
        const words = report.words();
        return {
            displaylogo: false, responsive: false, doubleClickDelay: 400, showTips: false,
            locale: "report-" + report.language(),
            modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
            toImageButtonOptions: { format: "png", scale: 2 },
            locales: { ["report-" + report.language()]: { dictionary: {
                "Download plot": words.download, "Download plot as a PNG": words.download, "Download plot as a png": words.download,
                Zoom: words.zoom, Pan: words.pan, "Zoom in": words.zoom_in, "Zoom out": words.zoom_out, "Reset axes": words.reset,
            }, format: {} } },
        };
    };

    const draw = async () => {
        const language = report.language();
        const theme = themed();
        for (const figure of document.querySelectorAll(`.page[data-language="${language}"] figure[data-plot]`)) {
            const plot = plots[figure.dataset.plot][language];
            const place = figure.querySelector(".plot");
            const fresh = !figure.classList.contains("drawn");
            figure.classList.add("drawn");
            try {
                await Plotly.react(place, tracesOf(plot, theme), layoutOf(plot, place.clientWidth, theme), config());
            } catch (error) {
                if (fresh) figure.classList.remove("drawn");
                throw error;
            }
        }
        document.dispatchEvent(new CustomEvent("report:figures"));
        report.ready.figures = language;
    };

    // One drawing at a time; what is asked for meanwhile is drawn once, afterwards.
    let running = null, again = false;
    const redraw = () => {
        delete report.ready.figures;
        if (running) { again = true; return; }
        running = draw().catch((error) => { console.error(error); }).finally(() => {
            running = null;
            if (again) { again = false; redraw(); }
        });
    };

    if (Object.keys(plots).length && "DecompressionStream" in window) {
        // Where the library cannot run the drawn figures stay, which show the same.
        unpack().then(() => {
            for (const kind of ["theme", "language"]) document.addEventListener("report:" + kind, redraw);
            let width = window.innerWidth;
            window.addEventListener("resize", () => {
                if (window.innerWidth !== width) { width = window.innerWidth; redraw(); }
            });
            redraw();
        }, (error) => { console.error(error); });
    } else {
        report.ready.figures = "none";
    }
}
