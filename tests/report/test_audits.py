"""An audit's page has its figures, and the strongest attack in large."""

from __future__ import annotations

from pathlib import Path

from lpgcn.report.audits import (
    AuditTable,
    TradeOff,
    audit_report,
    audit_sections,
    plot_trade_offs,
)
from lpgcn.report.runs import RunRecord
from lpgcn.report.sections import run_report

TABLES = [
    AuditTable(
        f"{suite} · lightgcn · α = 1.0x",
        ("adversary", "attack → about", "AUC"),
        [("server", "popularity → real or virtual", f"{area:.3f} [0.500, 0.900]")],
        [("server: popularity → real or virtual", area), ("client: sums → items", 0.5)],
        ["1.00 items are listed for each real one."],
    )
    for suite, area in (("sealed", 0.612), ("paper", 0.987))
]


def test_the_page_says_which_attack_is_the_strongest() -> None:
    page = audit_report("demo", TABLES).decode()
    for one in TABLES:
        assert f"Audit: {one.setting}" in page and one.rows[0][2] in page
    assert page.count("AUC of the strongest: server: popularity") == 2
    assert page.count('aria-label="AUC of each attack. ') == 2


def test_an_audit_is_part_of_the_report_of_its_run(runs: dict[str, Path]) -> None:
    page = run_report([RunRecord.read(runs["federated"])], more=audit_sections(TABLES)).decode()
    assert "Audit: paper" in page and "Who can read what" in page


def test_a_picture_has_a_line_for_each_draw_and_plan_from_no_virtual_items_on(
    tmp_path: Path,
) -> None:
    points = [
        TradeOff(("sealed", "lightgcn", "exact"), draw, plan, listed, {"server": 0.7}, 0.2, 5e4)
        for plan in ("partition", "cover")
        for draw, listed in ((None, 1.0), ("uniform", 2.0), ("coherent", 2.0), ("coherent", 3.0))
    ]
    path = tmp_path / "picture.svg"
    plot_trade_offs(points, path, "mine")
    drawn = path.read_text()
    for word in ("uniform", "coherent", "partition", "cover", "server"):
        assert f"<!-- {word} -->" in drawn
    assert "<!-- sealed" not in drawn
