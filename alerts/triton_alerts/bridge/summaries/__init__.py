"""Recorded incidents as text and JSON, and the weekly summary and period reports that the bridge posts."""
