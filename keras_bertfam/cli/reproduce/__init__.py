"""Reproduce papers' tables: train their rows, measure them, show both figures."""
