// Sorting of tables: by number where a column's cells are numbers of one unit, else by text.
{
    const UNITS = {
        s: ["time", 1], ms: ["time", 1e-3], "µs": ["time", 1e-6], us: ["time", 1e-6], min: ["time", 60], h: ["time", 3600],
        B: ["bytes", 1], KiB: ["bytes", 1024], MiB: ["bytes", 1024 ** 2], GiB: ["bytes", 1024 ** 3],
        W: ["power", 1], kW: ["power", 1e3], J: ["energy", 1], kJ: ["energy", 1e3],
    };
    const NUMBER = /^[≥≤<>=~≈约 ]*([+\-\u2212±]?)\s*(∞|\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)/;
    // The high end of a range, an interval in brackets, or whatever else stands between a number and its unit.
    const TAIL = /^\s*(?:[-\u2013\u2026~]\s*[+\-\u2212]?\d[\d,.]*)?\s*(%|[A-Za-zµ°][A-Za-z/°]*)?/;

    // null: nothing there. {number, unit, text}: a number. {text}: words.
    const read = (cell) => {
        const text = cell.textContent.trim();
        if (text === "" || text === "\u2014" || text === "-") return null;
        const found = /^\d{4}-\d{2}-\d{2}/.test(text) ? null : NUMBER.exec(text);
        if (!found) return { text };
        const after = TAIL.exec(text.slice(found[0].length));
        const [unit, factor] = UNITS[after[1]] || [after[1] || "", 1];
        const size = found[2] === "∞" ? Infinity : Number(found[2].replaceAll(",", "")) * factor;
        return { text, unit, number: found[1] === "-" || found[1] === "\u2212" ? -size : size };
    };

    // How a column is sorted: "number", "text", or null where an order would mean nothing (several units).
    const kind = (cells) => {
        const known = cells.filter((cell) => cell);
        if (new Set(known.map((cell) => cell.text)).size < 2) return null;
        const numbers = known.filter((cell) => "number" in cell);
        if (numbers.length * 2 <= known.length) return "text";
        return new Set(numbers.map((cell) => cell.unit)).size === 1 ? "number" : null;
    };

    const compare = (how) => (a, b) => {
        if (how === "number" && a.number !== b.number) return a.number < b.number ? -1 : 1;
        return a.text.localeCompare(b.text, undefined, { numeric: true });
    };

    // What has no value, and words among numbers, stay last in either direction.
    const order = (rows, cells, how, down) => {
        const has = (place) => cells[place] && (how === "text" || "number" in cells[place]);
        const all = rows.map((_, place) => place);
        const by = compare(how);
        const sorted = all.filter(has).sort((a, b) => (down ? by(cells[b], cells[a]) : by(cells[a], cells[b])) || a - b);
        return [...sorted, ...all.filter((place) => !has(place))].map((place) => rows[place]);
    };

    const buttons = [];
    const label = () => {
        for (const button of buttons) {
            const words = report.said[button.closest("[data-language]").dataset.language];
            const state = button.parentElement.getAttribute("aria-sort");
            button.title = state === "ascending" ? words.sorted_up : state === "descending" ? words.sorted_down : words.sort;
        }
    };

    const makeSortable = (table) => {
        const body = table.tBodies[0];
        if (!body || body.rows.length < 3) return;
        const rows = [...body.rows];
        const heads = [...table.tHead.rows[0].cells];
        const columns = heads.map((_, c) => rows.map((row) => (row.cells[c] ? read(row.cells[c]) : null)));
        const kinds = columns.map(kind);
        // A table of one fact a row (success rate, TTFT, ...) has a unit a row: there is nothing to sort.
        if (kinds.length === 2 ? kinds[1] === null : kinds.slice(1).every((how) => how !== "number")) return;
        heads.forEach((head, c) => {
            if (kinds[c] === null) return;
            const button = document.createElement("button");
            button.type = "button";
            button.append(...head.childNodes);
            head.append(button);
            buttons.push(button);
            button.addEventListener("click", () => {
                const state = head.getAttribute("aria-sort");
                const next = state === null ? "ascending" : state === "ascending" ? "descending" : null;
                heads.forEach((other) => other.removeAttribute("aria-sort"));
                if (next) head.setAttribute("aria-sort", next);
                body.append(...(next ? order(rows, columns[c], kinds[c], next === "descending") : rows));
                label();
            });
        });
    };
    document.querySelectorAll(".box > table").forEach(makeSortable);
    label();
    report.ready.tables = true;
}
