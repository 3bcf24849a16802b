"""Canonical GPU series in base units, whatever dialect the GPU source speaks."""

from __future__ import annotations
