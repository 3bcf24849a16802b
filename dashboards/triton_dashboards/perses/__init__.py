"""The dashboards as resources of Perses, from the values that Grafana's are made of."""
