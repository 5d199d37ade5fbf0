"""Quantisers."""

WORKLOADS = []
