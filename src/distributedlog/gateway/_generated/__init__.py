"""Made by `python -m distributedlog.control.generate` from the files in protos/; not to be edited."""
