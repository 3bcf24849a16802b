"""What the verbs do, one module each; `tritonwatch.usage` has their options."""
