"""A drawn figure inside an HTML page: the matplotlib file as one `<symbol>`, shown wherever it is
used.

In: an SVG file of draw_figures. Out: its symbol and its size. Ids get a prefix, since all figures
share one page; what is not drawing (metadata, style sheets, scripts) is left out.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

SVG = "http://www.w3.org/2000/svg"
XLINK = "{http://www.w3.org/1999/xlink}href"
_LEFT_OUT = {"metadata", "style", "script", "foreignObject", "title"}
_REFERENCE = re.compile(r"url\(#([^)]*)\)")


@dataclass(frozen=True)
class Plate:
    name: str
    view_box: str
    width: float  # of the view box; its unit is 1/72 inch
    symbol: str


def read(path: Path, name: str) -> Plate:
    """Raises ValueError where the file is no SVG."""
    try:
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    except (ElementTree.ParseError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no SVG: {error}") from error
    view_box = root.get("viewBox")
    if root.tag != f"{{{SVG}}}svg" or view_box is None:
        raise ValueError(f"{path} is no SVG with a viewBox")
    _clean(root, f"{name}-")
    ElementTree.register_namespace("", SVG)
    inner = "".join(ElementTree.tostring(child, encoding="unicode") for child in root)
    inner = inner.replace(f' xmlns="{SVG}"', "")
    symbol = f'<symbol id="{name}" viewBox="{view_box}">{inner}</symbol>'
    return Plate(name, view_box, float(view_box.split()[2]), symbol)


def _clean(element: ElementTree.Element, prefix: str) -> None:
    for child in list(element):
        if not isinstance(child.tag, str) or child.tag.rpartition("}")[2] in _LEFT_OUT:
            element.remove(child)
        else:
            _clean(child, prefix)
    if "id" in element.attrib:
        element.set("id", prefix + element.attrib["id"])
    link = element.attrib.pop(XLINK, None) or element.attrib.pop("href", None)
    if link:
        element.set("href", f"#{prefix}{link[1:]}" if link.startswith("#") else link)
    for name, value in list(element.attrib.items()):
        if name.lower().startswith("on"):
            del element.attrib[name]
        elif "url(#" in value:
            element.set(name, _REFERENCE.sub(rf"url(#{prefix}\1)", value))
