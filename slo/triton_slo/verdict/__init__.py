"""Verdicts from recorded series: status, gate, release, canary comparison."""
