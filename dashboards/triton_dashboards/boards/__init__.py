"""The dashboards, one module each; every module opens with the question that its dashboard answers."""
