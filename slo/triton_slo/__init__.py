"""Objectives in, recording rules, burn-rate alerts and verdicts out."""
