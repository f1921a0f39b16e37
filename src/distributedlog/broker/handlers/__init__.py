"""One module per API, named like its messages in `protocol/messages/`; the contract stands in `dispatch`.

`dispatch.load_handlers` imports every module here; importing the package alone imports none.
"""
