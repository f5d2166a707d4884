"""Probes: small classifiers that read labels off the states of each layer."""
