"""One supervised lens: neighbourhood components analysis."""
