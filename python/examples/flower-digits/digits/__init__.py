"""Federated averaging of a digit classifier."""
