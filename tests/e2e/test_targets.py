"""The targets beside `report`: a partial report starts nothing, an experiment measures its own launches."""

from __future__ import annotations

from tests.e2e.lab import Count, Lab
from tests.e2e.small import study


def test_a_partial_report_starts_nothing_and_lists_what_is_pending(lab: Lab) -> None:
    lab.write_config(study())
    call = lab.run("report_partial")
    assert call.exit_code == 0, call.text
    assert "3 runs pending" in call.text and "decode_noparser_short_c2_t16_r2" in call.text
    assert lab.count() == Count(0, 0)
    page = (lab.root / "report/small/partial/report.en.md").read_text(encoding="utf-8")
    assert "not measured yet" in page


def test_an_experiment_is_a_target_of_its_own(lab: Lab) -> None:
    config = study()
    config["experiments"]["other"] = {"runs": {"parser": ["two"]}}
    config["variants"]["one_seq"] = {"flags": {"--max-num-seqs": 1}}
    config["experiments"]["third"] = {"runs": {"one_seq": ["one"]}}
    lab.write_config(config)
    call = lab.run("experiment_third")
    assert call.exit_code == 0, call.text
    assert lab.count() == Count(1, 1), "only what this experiment needs was handed to the host"
    assert not (lab.root / "report/small/report.en.md").exists()
    assert lab.wait_for_no_process() == {}
