"""The thin typed layer over grafanalib: values, panels and the dashboard model of Grafana 12 and 13."""
