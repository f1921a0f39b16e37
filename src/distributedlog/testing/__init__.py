"""Brokers for the tests of programs: `pip install 'distributedlog[testing]'` brings fixtures for pytest.

cluster   brokers as processes of their own, which can be killed and paused
proxy     the network between clients and brokers, which can be cut and delayed
plugin    the fixtures `dlog_broker`, `dlog_topic` and `dlog_cluster`
"""

from distributedlog.testing.cluster import BrokerHandle, TestCluster

__all__ = ["BrokerHandle", "TestCluster"]
