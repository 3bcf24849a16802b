"""Alert catalogue, runbooks, Alertmanager configuration and the Slack bridge."""
