"""A broker tells its machine when it registers, and again when the cluster's level comes to keep it."""

import pytest

from distributedlog.broker.cluster.lifecycle import REGISTER_AGAIN_MS
from distributedlog.controller.bundles import encode_bundle
from distributedlog.controller.features import LEVEL_HOSTS, LEVEL_MAX, METADATA_FEATURE, versioned
from distributedlog.controller.records import FeatureLevelSet, NoOp, RegisterBroker
from distributedlog.controller.requests import RegisterBrokerReply, RegisterBrokerRequest
from distributedlog.model.errors import InvalidRequestError
from distributedlog.protocol.schema import Message
from tests.unit.broker.cluster.test_lifecycle import EPOCH, Bench, S
from tests.unit.broker.control_stage import registration


def replay(bench: Bench, record: Message, offset: int) -> None:
    bench.replica.handle_entry(encode_bundle(versioned([record], LEVEL_MAX)), offset)
    bench.replica.publish()
    bench.lifecycle.tell_host(bench.replica.image)


def registered(epoch: int) -> RegisterBroker:
    return RegisterBroker(
        broker_id=9,
        incarnation_id=registration(9).incarnation_id,
        broker_epoch=epoch,
        end_points=[],
        features=[],
        rack=None,
        fenced=False,
    )


def test_the_host_is_told_once_more_when_the_level_rises_until_it_is_in_the_image() -> None:
    bench = Bench(host="machine-9")
    bench.reach(S.RUNNING)
    bench.calls.clear()
    known = registered(EPOCH)
    replay(bench, known, EPOCH + 1)
    assert bench.calls == [], "the level keeps no hosts"
    replay(bench, FeatureLevelSet(name=METADATA_FEATURE, feature_level=LEVEL_HOSTS), EPOCH + 2)
    replay(bench, NoOp(), EPOCH + 3)
    (call,) = bench.calls
    assert call.request == registration(9)._replace(host="machine-9")
    bench.refuse(InvalidRequestError("not now"))
    asked = [bench.wait_for_call(REGISTER_AGAIN_MS)]
    while not isinstance(asked[-1], RegisterBrokerRequest):
        bench.reply()
        asked.append(bench.wait_for_call())
    bench.answer(RegisterBrokerReply(EPOCH))
    known.host = "machine-9"
    replay(bench, known, EPOCH + 4)
    assert bench.lifecycle.state is S.RUNNING
    assert bench.lifecycle.epoch == EPOCH
    bench.timers.advance(2 * REGISTER_AGAIN_MS)
    assert not any(isinstance(each.request, RegisterBrokerRequest) for each in bench.calls)


@pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1])
def test_the_host_of_another_life_is_let_be(epoch: int) -> None:
    bench = Bench(host="machine-9")
    bench.reach(S.RUNNING)
    bench.calls.clear()
    replay(bench, FeatureLevelSet(name=METADATA_FEATURE, feature_level=LEVEL_HOSTS), EPOCH + 1)
    other = registered(epoch)
    replay(bench, other, EPOCH + 2)
    assert bench.calls == []
