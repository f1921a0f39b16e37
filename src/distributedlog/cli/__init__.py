"""The command `dlog`: one module per command, loaded when it is used, so that `dlog --help` stays instant."""
