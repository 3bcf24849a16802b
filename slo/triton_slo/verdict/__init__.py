"""What recorded series show of objectives: status, gate, canary comparison."""
