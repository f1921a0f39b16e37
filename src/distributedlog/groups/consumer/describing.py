"""ConsumerGroupDescribe: a group, its epochs, and its members with what they have and are to have."""

from distributedlog.groups.config import GroupConfig
from distributedlog.groups.consumer.group import ConsumerGroup
from distributedlog.groups.consumer.planning import choose_assignor
from distributedlog.groups.requests import DescribeConsumerGroupReply, DescribedConsumer


def describe(group: ConsumerGroup, config: GroupConfig) -> DescribeConsumerGroupReply:
    members = tuple(
        DescribedConsumer(
            member_id=each.member_id,
            instance_id=each.instance_id,
            rack_id=each.rack_id,
            epoch=each.epoch,
            client_id=each.client_id,
            client_host=each.client_host,
            topics=each.topics,
            pattern=each.pattern,
            assigned=each.assigned,
            target=group.target(each.member_id),
            is_classic=each.classic is not None,
        )
        for each in group.members.values()
    )
    return DescribeConsumerGroupReply(
        group.group_id, group.state, group.epoch, group.target_epoch, choose_assignor(group, config), members
    )
