"""The Slack bridge: Alertmanager's webhook in, one message per incident out, nothing lost between."""
