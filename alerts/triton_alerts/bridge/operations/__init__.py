"""Operations on open incidents: button presses, escalation, and comparison with Alertmanager."""
