"""What all five packages use: durations, moments, options, YAML files and text that is safe to print."""
