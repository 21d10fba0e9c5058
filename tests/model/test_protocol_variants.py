"""Each rule that the model of the protocol can break is broken by `scripts/model`."""

from __future__ import annotations

import re

from tests.model.check_protocol import MODEL, VARIANTS


def test_each_rule_that_can_be_broken_is_a_variant_that_must_fail() -> None:
    rules = re.findall(r"defined\(([A-Z_]+)\)", MODEL.read_text())
    assert sorted(rules) == sorted(VARIANTS)
