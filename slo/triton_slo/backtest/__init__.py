"""Replays history through alert policies and scores them against labelled incidents."""
