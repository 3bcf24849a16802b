"""Requests that wait for the next interval, and enter the histogram as a part of it."""

from __future__ import annotations

from dataclasses import dataclass

from triton_exporter.distribution.shape import Interval


@dataclass(slots=True)
class CarriedOver:
    """Requests for the next interval, their seconds, and how many `units` of them are independent of each other."""

    requests: float = 0.0
    seconds: float = 0.0
    units: float = 0.0

    def add(self, requests: float, seconds: float, units: float = 0.0) -> None:
        """Carry these over, too."""
        self.requests += requests
        self.seconds += seconds
        self.units += units

    def joined(self, interval: Interval) -> Interval | None:
        """Return an interval with what was carried over; None where it has no request, and is carried over, too.

        Triton adds to its counters one after the other, so a body can contain a request's time without the
        request; that time waits for the next interval, and the sum stays exact.
        """
        self.requests += interval.requests
        self.seconds += interval.seconds
        if self.requests <= 0:
            return None
        part = self.requests / interval.requests if interval.requests else 0.0
        whole = interval._replace(
            requests=self.requests,
            seconds=self.seconds,
            units=self.units + interval.units,
            waited=part * interval.waited,
            worked=part * interval.worked,
        )
        self.requests = self.seconds = self.units = 0.0
        return whole
