"""This node in its cluster: Raft's driver and storage, the controller's driver, the broker's lifecycle,
the metadata replica, requests forwarded to the active controller.
"""
