"""The commands that train the joint heads on a GPU, as studies/campaign.toml states them."""

import re
import shlex
from pathlib import Path

from studies.shipped_weights.joint_head import parse

CAMPAIGN = Path(__file__).parents[2] / "studies" / "campaign.toml"


def test_the_commands_of_the_campaign_can_be_read():
    stated = re.findall(r"studies\.shipped_weights\.joint_head (.*)", CAMPAIGN.read_text())
    arguments = [parse(shlex.split(words)) for words in stated]
    assert [(each.name, each.scale) for each in arguments] == [
        ("edsr-baseline", 4),
        ("edsr-baseline", 2),
    ]
    assert {each.device for each in arguments} == {"cuda"}
