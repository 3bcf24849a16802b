"""Sources of GPU readings: dcgm-exporter, NVML, Triton."""
