"""A policy that is a neural network, and the policy-gradient trainer that teaches it."""
