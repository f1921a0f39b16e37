"""The gateway's BrokerService: produce, fetch and metadata for programs without a Kafka client."""
