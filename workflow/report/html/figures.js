// The interactive figures. Each plot is data and axes without any place; where a panel stands, how the theme
// colours it and what the buttons say is decided here, for the width that there is.
{
    const NARROW = 640;
    const LEAST = 170; // px of a panel that has others beside it
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
        return {
            ink: value("ink"), soft: value("soft"), line: value("line"), paper: value("paper"),
            warn: value("warn-ink"), met: value("met"), missed: value("missed"),
        };
    };

    // Traces name colours of the palette; ink and paper are the theme's.
    const coloured = (value, theme) => {
        if (typeof value === "string" && value.startsWith("@") && value.slice(1) in theme) return theme[value.slice(1)];
        if (Array.isArray(value)) return value.map((part) => coloured(part, theme));
        if (value && typeof value === "object") {
            return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, coloured(part, theme)]));
        }
        return value;
    };

    // About as wide as a label is drawn, in px; of several lines the longest. Its text is escaped.
    const widthOf = (label) => Math.max(...label.split("<br>").map((line) => {
        const said = line.replaceAll(/&\w+;/g, "&");
        return [...said].reduce((sum, c) => sum + (c > "\u2e7f" ? 12 : 6.6), 0);
    }), 0);
    const widest = (labels) => Math.max(0, ...labels.map(widthOf));
    const linesOf = (labels) => Math.max(1, ...labels.map((label) => label.split("<br>").length));

    // Where there is no room beside a row, its label and its note stand above it, and rows are higher.
    const heightOf = (panel, narrow, stacked) => {
        if (!narrow || !panel.rows) return panel.height;
        const row = (14 * linesOf(panel.rows) + 4) / (stacked ? 0.25 : 0.38);
        return Math.max(panel.height, 30 + row * panel.rows.length);
    };

    // Labels and notes of a panel of rows.
    const rowsOf = (panel, tail, narrow, theme) => {
        const notes = new Map((panel.notes || []).map((note) => [note.row, note]));
        const common = { showarrow: false, xref: `x${tail} domain`, yref: "y" + tail, font: { size: 11 } };
        if (!narrow) {
            return [...notes.values()].map((note) => ({
                ...common, text: note.text, x: 1, xanchor: "left", xshift: 6, y: note.row, yanchor: "middle",
                font: { size: 11, color: coloured(note.colour, theme) },
            }));
        }
        return panel.rows.map((label, row) => ({
            ...common, text: notes.has(row) ? `${label}: ${notes.get(row).text}` : label,
            x: 0, xanchor: "left", align: "left", y: row - 0.5, yanchor: "top", borderpad: 0,
        }));
    };

    const layoutOf = (plot, width, theme) => {
        const narrow = width < NARROW;
        const labels = widest(plot.panels.flatMap((p) => p.rows || []));
        const beside = widest(plot.panels.flatMap((p) => (p.notes || []).map((note) => note.text)));
        const right = narrow || !beside ? plot.right : Math.max(plot.right, beside + 14);
        const room = width - Math.max(plot.left, labels) - right;
        const columns = narrow ? 1 : Math.max(1, Math.min(plot.columns, Math.floor(room / LEAST)));
        const count = plot.panels.length;
        const rows = Math.ceil(count / columns);
        const bars = plot.traces.some((trace) => trace.type === "bar");
        const stacked = bars && !plot.traces.some((trace) => trace.base); // bars that name their begin lie there
        const tall = plot.panels.map((p) => heightOf(p, narrow, stacked));
        const heights = Array.from({ length: rows }, (_, r) => Math.max(...tall.slice(r * columns, (r + 1) * columns)));
        const gap = plot.shared_x ? 34 : 84;
        const area = heights.reduce((a, b) => a + b, 0) + gap * (rows - 1);
        const legend = plot.legend_rows * (narrow ? 3 : 1) * 22;
        const top = 88, bottom = 66 + legend; // above: buttons, then the source's name, then the panel's title
        const layout = {
            height: area + top + bottom,
            width,
            margin: { t: top, b: bottom, l: plot.left, r: right, autoexpand: true },
            paper_bgcolor: "rgba(0,0,0,0)",
            plot_bgcolor: "rgba(0,0,0,0)",
            font: { color: theme.ink, size: 12, family: getComputedStyle(document.body).fontFamily },
            hoverlabel: { bgcolor: theme.paper, bordercolor: theme.soft, font: { color: theme.ink }, namelength: -1, align: "left" },
            hovermode: "closest",
            ...(bars ? { barmode: stacked ? "stack" : "overlay" } : {}),
            dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
            uirevision: "kept",
            showlegend: true,
            legend: { orientation: "h", x: 0, xanchor: "left", y: -(56 / area), yanchor: "top", font: { size: 11 }, groupclick: "togglegroup" },
            modebar: { color: theme.soft, activecolor: theme.ink, bgcolor: "rgba(0,0,0,0)" },
            annotations: [],
            shapes: [],
        };
        const across = Math.max(0.075, beside && columns > 1 ? (beside + 20) / room : 0);
        let down = 0;
        plot.panels.forEach((panel, place) => {
            const row = Math.floor(place / columns), column = place % columns;
            const tail = place === 0 ? "" : String(place + 1);
            const wide = (1 - across * (columns - 1)) / columns;
            if (column === 0) down = heights.slice(0, row).reduce((a, b) => a + b, 0) + gap * row;
            const common = { gridcolor: theme.line, linecolor: theme.soft, zerolinecolor: theme.line, showline: true, ticks: "outside", tickcolor: theme.soft, automargin: true };
            const last = place + columns >= count; // of its column
            const within = plot.shared_y && column > 0;
            layout["xaxis" + tail] = {
                ...common, ...coloured(panel.x, theme),
                domain: [column * (wide + across), column * (wide + across) + wide],
                anchor: "y" + tail,
                ...(plot.shared_x && place > 0 ? { matches: "x" } : {}),
                ...(plot.shared_x && !last ? { showticklabels: false, title: { text: "" } } : {}),
            };
            layout["yaxis" + tail] = {
                ...common, ...coloured(panel.y, theme),
                ...(within ? { showticklabels: false, title: { text: "" } } : {}),
                ...(plot.shared_y && place > 0 ? { matches: "y" } : {}),
                ...(panel.rows && narrow ? { showticklabels: false, ticks: "" } : {}),
                domain: [Math.max(0, 1 - (down + heights[row]) / area), 1 - down / area],
                anchor: "x" + tail,
            };
            if (panel.title) {
                layout.annotations.push({ text: panel.title, xref: `x${tail} domain`, yref: `y${tail} domain`, x: 0, y: 1, xanchor: "left", yanchor: "bottom", showarrow: false, font: { size: 12 } });
            }
            if (panel.rows) layout.annotations.push(...rowsOf(panel, tail, narrow, theme));
            for (const line of panel.uprights || []) {
                layout.shapes.push({ type: "line", xref: "x" + tail, yref: `y${tail} domain`, x0: line.at, x1: line.at, y0: 0, y1: 1, line: { color: coloured(line.colour, theme), width: 1.4, dash: "dash" } });
                if (line.text) layout.annotations.push({ text: line.text, xref: "x" + tail, yref: `y${tail} domain`, x: line.at, xanchor: "left", y: 1, yanchor: "bottom", showarrow: false, font: { size: 11, color: theme.ink } });
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
        if (!narrow) layout.annotations.push({ text: `<b>${plot.title}</b>`, xref: "paper", yref: "paper", x: 0, y: 1, xanchor: "left", yanchor: "bottom", yshift: 60, showarrow: false, font: { size: 13 } });
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

    // The legend is drawn for a pointer only: here its entries become stops of the keyboard too. It is drawn anew
    // whenever it is used, so what had the focus gets it again.
    const reachable = (place) => {
        const focused = place.contains(document.activeElement) ? document.activeElement.dataset.stop : null;
        place.querySelectorAll(".legendtoggle").forEach((stop, number) => {
            const item = stop.closest("g.traces");
            stop.setAttribute("tabindex", "0");
            stop.setAttribute("role", "button");
            stop.setAttribute("aria-label", item.querySelector(".legendtext").textContent);
            stop.setAttribute("aria-pressed", String(traceOf(item).visible === true));
            stop.dataset.stop = number;
            if (focused === String(number)) stop.focus();
        });
    };

    const traceOf = (item) => item.__data__[0].trace;

    const press = (event) => {
        const stop = event.target.closest(".legendtoggle");
        if (!stop || (event.key !== "Enter" && event.key !== " ")) return;
        event.preventDefault();
        const place = stop.closest(".plot"), chosen = traceOf(stop.closest("g.traces"));
        const same = (trace) => (chosen.legendgroup ? trace.legendgroup === chosen.legendgroup : trace.index === chosen.index);
        const traces = place._fullData.filter(same).map((trace) => trace.index);
        Plotly.restyle(place, { visible: chosen.visible === true ? "legendonly" : true }, traces);
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
                if (fresh) {
                    place.addEventListener("keydown", press);
                    place.on("plotly_afterplot", () => reachable(place));
                }
                reachable(place);
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
