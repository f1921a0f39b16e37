"""One module per API, named like its messages in `protocol/messages/`; the contract stands in `dispatch`.

`_served` lists them; importing the package imports none.
"""
