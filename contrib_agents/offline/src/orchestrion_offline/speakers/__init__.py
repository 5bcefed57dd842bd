"""The speakers of this distribution."""
