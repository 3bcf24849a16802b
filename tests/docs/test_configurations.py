"""Test that the real programs accept the configurations of the pages, and that they match the rules."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from support.tools import ROOT, promtools
from triton_exporter.catalogue import EXPORTER_JOB
from triton_slo.bridge_series import BRIDGE_JOB
from tritonwatch.cli import main

# Page -> whether the block is a whole configuration, and not lines for one that exists.
PAGES = {"README.md": True, "docs/start.md": True}
SCRAPE_INTERVAL = "15s"
"""What `tritonwatch generate` makes its windows for unless another is given."""


@pytest.mark.parametrize("page", PAGES)
def test_a_page_s_prometheus_configuration_feeds_the_rules(page: str, tmp_path: Path) -> None:
    """Pasted beside the generated rules, promtool takes it; its job and its interval are those the rules need."""
    blocks = re.findall(r"^```yaml[^\n]*\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    (text,) = [block for block in blocks if "scrape_configs" in block]
    (tmp_path / "prometheus.yml").write_text(text)
    assert 0 == main(
        ["generate", "--objectives", str(ROOT / "slo" / "objectives"), "--out", str(tmp_path / "generated")]
    )

    for promtool in promtools():
        done = subprocess.run(
            [promtool, "check", "config", "prometheus.yml"], cwd=tmp_path, capture_output=True, text=True
        )
        assert 0 == done.returncode, done.stderr
        assert "generated/rules/triton-meta.yml" in done.stdout, "no rule file is read"
    config = yaml.safe_load(text)
    jobs = [job["job_name"] for job in config["scrape_configs"]]
    assert jobs in ([EXPORTER_JOB], [EXPORTER_JOB, BRIDGE_JOB])
    if PAGES[page]:
        assert {SCRAPE_INTERVAL} == {
            config["global"][f"{what}_interval"] for what in ("scrape", "evaluation")
        }
