"""The values are those that Apache Kafka 4.2.1 takes and refuses for subscriptions to clients' metrics."""

import pytest

from distributedlog.model.client_metrics_settings import EXPRESSION_LENGTH_MAX, check_settings
from distributedlog.model.errors import ConfigError, InvalidRequestError


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("interval.ms", "100"),
        ("interval.ms", " 3600000 "),
        ("metrics", ""),
        ("metrics", "*"),
        ("metrics", "org.apache.kafka.producer., org.apache.kafka.consumer."),
        ("metrics", "a,a"),
        ("match", ""),
        ("match", "client_id=a.*, client_software_name = apache-kafka-java"),
        ("match", "client_source_address=10[.]1[.].*,client_source_port=90.."),
    ],
)
def test_what_kafka_takes_is_taken(name: str, text: str) -> None:
    check_settings({name: text})


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("interval.ms", "99", InvalidRequestError),
        ("interval.ms", "3600001", InvalidRequestError),
        ("interval.ms", "soon", ConfigError),
        ("interval.ms", "2147483648", ConfigError),
        ("no.such", "1", InvalidRequestError),
        ("metrics", "a,,b", ConfigError),
        ("match", "client_id", ConfigError),
        ("match", "client_id=", ConfigError),
        ("match", "client_id=a=b", ConfigError),
        ("match", "user=ann", ConfigError),
        ("match", "client_id=(", ConfigError),
        ("match", "client_id=" + "(" * EXPRESSION_LENGTH_MAX + ")" * EXPRESSION_LENGTH_MAX, ConfigError),
    ],
)
def test_what_kafka_refuses_is_refused(name: str, text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        check_settings({name: text})
