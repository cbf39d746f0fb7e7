"""Weights of several encoders of one base as one."""
