"""The panels, each a function from a scene to data."""
