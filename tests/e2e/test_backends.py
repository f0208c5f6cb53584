"""Which backends the engine could choose: asked before the first start, kept, and told in the report."""

from __future__ import annotations

import json

from tests.e2e.lab import Count, Lab
from tests.e2e.small import study


def test_the_engine_is_asked_before_its_first_start(lab: Lab) -> None:
    config = study()
    config["variants"] = {
        "plain": {},
        "flash": {"attention_backend": "FLASH_ATTN"},
        "made_up": {"attention_backend": "SIM_ATTN"},
        "nowhere": {"attention_backend": "FLSH_ATTN"},
    }
    config["experiments"] = {
        "B": {
            "runs": {name: ["one"] for name in config["variants"]},
            "questions": [
                {
                    "id": name,
                    "kind": "compare_variants",
                    "metric": "decode_rate",
                    "workload": "one",
                    "baseline": "plain",
                    "candidate": name,
                    "smallest_effect": "5%",
                }
                for name in ("flash", "made_up", "nowhere")
            ],
        }
    }
    lab.write_config(config)
    asked = lab.run("probe")
    assert asked.exit_code == 0, asked.text
    assert "attention backends that could be chosen: XFORMERS, SIM_ATTN" in asked.text
    assert "nowhere asks for FLSH_ATTN, which this engine does not list" in asked.text
    assert lab.count() == Count(0, 0), "nothing is started for it"
    (kept,) = (lab.root / "results/small/backends").glob("*.json")
    kept.unlink()

    call = lab.run("report")
    assert call.exit_code == 0, call.text
    assert "which cannot be chosen: Cannot use FlashAttention-2 backend" in call.text
    record = json.loads(kept.read_text(encoding="utf-8"))
    assert record["state"] == "told" and record["simulated"] is True
    starts = sorted((lab.root / "results/raw").glob("*/start1/*/start.json"))
    assert kept.stat().st_mtime < min(file.stat().st_mtime for file in starts)

    told = {v["id"]: v for v in lab.json("results/small/verdicts.json")["verdicts"]}
    verdicts = {v.get("question") or name: v["verdict"] for name, v in told.items()}
    assert verdicts["flash"] == "invalid", "it started, on another backend"
    assert verdicts["nowhere"] == "not_possible"
    assert verdicts["made_up"] in ("supported", "refuted", "inconclusive")
    page = (lab.root / "report/small/report.en.md").read_text(encoding="utf-8")
    for words in (
        "| `FLASH_ATTN` | **no** |",
        "| `SIM_ATTN` | yes |",
        "FLSH\\_ATTN" if "FLSH\\_ATTN" in page else "`FLSH_ATTN` is asked for",
        "`scripts/sim/startup.py`",
        "took effect" if "took effect" in page else "did not take effect",
        "Invalid attention backend 'FLSH_ATTN'",
    ):
        assert words in page, words
    again = lab.run("report")
    assert again.exit_code == 0 and "Nothing to be done" in again.text, again.text
    assert lab.wait_for_no_process() == {}
