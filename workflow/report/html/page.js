"use strict";
// The page without this script is whole: languages and themes are switched by style alone. The script remembers
// what was chosen, keeps the place of reading, and tells the other scripts.
const report = { ...JSON.parse(document.getElementById("data").textContent), ready: {} };

report.kept = {
    get(name) {
        try { return localStorage.getItem("decodelab." + name); } catch { return null; }
    },
    set(name, value) {
        try { localStorage.setItem("decodelab." + name, value); } catch { /* some browsers keep nothing of a local file */ }
    },
};
report.language = () => document.querySelector("input[name=language]:checked").value;
report.words = () => report.said[report.language()];

{
    const root = document.documentElement;
    const page = (language) => document.querySelector(`.page[data-language="${language}"]`);
    const headings = (language) => [...page(language).querySelectorAll("h1, h2, h3")];
    const tell = (name) => document.dispatchEvent(new CustomEvent("report:" + name));
    let shown = report.language();

    // Both languages have the same headings in the same order.
    const placeOfReading = () => {
        const limit = document.querySelector(".bar").offsetHeight + 24;
        const above = headings(shown).filter((heading) => heading.getBoundingClientRect().top < limit);
        const last = above[above.length - 1];
        return last && window.scrollY > 0 ? { index: above.length - 1, top: last.getBoundingClientRect().top } : null;
    };
    const show = (language, place) => {
        shown = language;
        root.lang = root.dataset.shown = language;
        document.title = report.said[language].title;
        const heading = place && headings(language)[place.index];
        if (heading) window.scrollBy(0, heading.getBoundingClientRect().top - place.top);
        tell("language");
    };
    // The page that is hidden has no geometry: where the reader is must be known before the style changes.
    let place = null;
    for (const kind of ["pointerdown", "keydown"]) {
        document.querySelector(".bar").addEventListener(kind, () => { place = placeOfReading(); }, true);
    }
    for (const input of document.querySelectorAll("input[name=language]")) {
        input.addEventListener("change", () => {
            report.kept.set("language", input.value);
            show(input.value, place);
        });
    }
    for (const input of document.querySelectorAll("input[name=theme]")) {
        input.addEventListener("change", () => {
            report.kept.set("theme", input.value);
            root.dataset.theme = input.value;
            tell("theme");
        });
    }
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => tell("theme"));

    const check = (name, value) => {
        const input = value && document.getElementById(`${name}-${value}`);
        if (input) input.checked = true;
    };
    // A link into one language shows that language.
    const linked = () => {
        const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
        return target && target.closest(".page");
    };
    const follow = () => {
        const target = linked();
        if (!target || target.dataset.language === shown) return;
        check("language", target.dataset.language);
        show(target.dataset.language, null);
        document.getElementById(decodeURIComponent(location.hash.slice(1))).scrollIntoView();
    };
    window.addEventListener("hashchange", follow);
    check("theme", report.kept.get("theme"));
    root.dataset.theme = document.querySelector("input[name=theme]:checked").value;
    check("language", report.kept.get("language"));
    if (report.language() !== shown) show(report.language(), null);
    follow();

    const narrow = matchMedia("(max-width: 63.99rem)");
    const fold = () => document.querySelectorAll(".contents details").forEach((d) => { d.open = !narrow.matches; });
    narrow.addEventListener("change", fold);
    fold();

    // A box that scrolls must be reachable by keyboard; one that does not is no stop.
    const stops = () => {
        const boxes = [...document.querySelectorAll(`.page[data-language="${shown}"] :is(.box, .plate)`)];
        // All is read before anything is written: else each box costs a layout of the whole page.
        const scrolls = boxes.map((box) => box.scrollWidth > box.clientWidth + 1);
        boxes.forEach((box, place) => {
            if (scrolls[place] === box.hasAttribute("tabindex")) return;
            if (scrolls[place]) box.tabIndex = 0;
            else box.removeAttribute("tabindex");
        });
    };
    window.addEventListener("resize", stops);
    for (const kind of ["language", "figures"]) document.addEventListener("report:" + kind, stops);
    stops();
}
