"""The words of the domain: identifiers, error codes, errors and configurations.  Pure data, no effects."""
