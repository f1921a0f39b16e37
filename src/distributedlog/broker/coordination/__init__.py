"""Machines of records and replay on their logs: controller, group coordinators; and producer ids."""
