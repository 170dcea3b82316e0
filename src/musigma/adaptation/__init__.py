"""Weights and error bars for the pictures of a user: split, train, calibrate."""
