"""Verdicts from recorded series: status, gate, canary comparison."""
