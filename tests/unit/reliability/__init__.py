"""The checker of histories, tried on histories made by hand."""
