"""What recorded series say about objectives: status, gate, canary comparison."""
