"""The controller's requests and answers, and errors, as protobuf messages and back.

Both directions are exact: what is decoded equals what was encoded.  `checks` holds the limits; one module
for each family of requests; `errors` for what is raised; `envelope` puts them into whole messages.
"""
