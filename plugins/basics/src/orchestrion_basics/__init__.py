"""Rewards, plain policies and baselines."""
