"""Readers that all viewers share: of Prometheus, of the incidents of the bridge, and of a Triton for `doctor`."""
