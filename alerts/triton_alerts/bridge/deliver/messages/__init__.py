"""What a Slack message about incidents contains."""
