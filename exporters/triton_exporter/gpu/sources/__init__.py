"""Where GPU readings come from: dcgm-exporter, NVML, Triton."""
