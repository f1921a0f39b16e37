"""Requests of one connection are handled as if one after the other."""

from distributedlog.broker.net.admission import ServerLimits
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HANDLERS, HandlerResponse, Order
from distributedlog.broker.net.pending import PendingResponse
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import StaleBrokerEpochError
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.messages.heartbeat import HeartbeatRequest
from tests.unit.broker.server_stage import Later, Network, answer, asked


def test_a_request_begins_when_the_response_before_it_is_decided(network: Network) -> None:
    async def story() -> None:
        async with network.stage(order=Order.STRICT) as stage:
            later = stage.reply = Later()
            client = await stage.connect()
            other = await stage.connect()
            await client.send(asked("first", 1) + asked("second", 2))
            await other.send(asked("other", 1))
            await stage.counts.until(lambda: "other" in stage.begun)
            assert "second" not in stage.begun
            later.come("first")
            assert (await client.answer())[0] == 1
            await stage.counts.until(lambda: "second" in stage.begun)
            later.come("second")
            assert (await client.answer())[0] == 2
            later.come("other")

    network.run(story())


def test_anything_may_overtake_what_only_reads(network: Network) -> None:
    async def story() -> None:
        async with network.stage(order=Order.OVERTAKEN) as stage:
            later = stage.reply = Later()
            client = await stage.connect()
            await client.send(asked("waits", 1) + asked("behind", 2))
            await stage.counts.until(lambda: len(stage.begun) == 2)
            later.come("behind")
            later.come("waits")
            assert [(await client.answer())[0] for _ in range(2)] == [1, 2]

    network.run(story())


def test_what_has_had_no_effect_yet_holds_back_its_own_kind_too(network: Network) -> None:
    async def story() -> None:
        async with network.stage() as stage:
            pending: list[PendingResponse] = []

            def reply(request: HeartbeatRequest, context: RequestContext) -> HandlerResponse:
                pending.append(PendingResponse(is_applied=request.group_id != "unapplied"))
                return pending[-1]

            stage.reply = reply
            client = await stage.connect()
            other = await stage.connect()
            await client.send(asked("unapplied", 1) + asked("behind", 2))
            await other.send(asked("other", 1))
            await stage.counts.until(lambda: len(stage.begun) == 2)
            assert "behind" not in stage.begun
            pending[stage.begun.index("unapplied")].set_applied()
            await stage.counts.until(lambda: "behind" in stage.begun)
            for each in pending:
                each.set_result(answer(0))
            assert [(await client.answer())[0] for _ in range(2)] == [1, 2]

    network.run(story())


class Held:
    """Pending responses that the test decides; those of "unapplied" have had no effect yet."""

    def __init__(self) -> None:
        self.pending: dict[str, PendingResponse] = {}

    def __call__(self, request: HeartbeatRequest, context: RequestContext) -> HandlerResponse:
        pending = PendingResponse(is_applied=not request.group_id.startswith("unapplied"))
        self.pending[request.group_id] = pending
        return pending


def test_a_pending_response_that_is_decided_by_its_handler_takes_its_place(network: Network) -> None:
    def reply(request: HeartbeatRequest, context: RequestContext) -> HandlerResponse:
        if request.group_id == "waits":
            return held(request, context)
        pending = PendingResponse(is_applied=False)
        if request.group_id == "fails":
            pending.set_exception(StaleBrokerEpochError("old"))
        else:
            pending.set_result(None if request.group_id == "none" else answer(5))
        return pending

    held = Held()

    async def story() -> None:
        async with network.stage() as stage:
            stage.reply = reply
            client = await stage.connect()
            assert await client.ask("at once", 1) == (1, 5)
            names = ["waits", "at once", "none", "fails"]
            await client.send(b"".join(asked(name, number) for number, name in enumerate(names)))
            await stage.counts.until(lambda: len(stage.begun) == 5)
            assert stage.counts.delayed_now > 0
            held.pending["waits"].set_result(answer(1))
            responses = [await client.answer() for _ in range(3)]
            assert responses == [(0, 1), (1, 5), (3, ErrorCode.STALE_BROKER_EPOCH)]

    network.run(story())


def test_what_is_yet_to_have_its_effect_has_it_though_its_client_leaves(network: Network) -> None:
    async def story() -> None:
        async with network.stage() as stage:
            held = stage.reply = Held()
            client = await stage.connect()
            await client.send(asked("unapplied", 1))
            await stage.counts.until(lambda: stage.begun == ["unapplied"])
            pending = held.pending["unapplied"]
            cancelled: list[bool] = []
            pending.on_cancel = lambda: cancelled.append(True)
            client.close()
            await stage.counts.until_closed("client gone")
            assert pending.is_cancelled, "nobody waits for the response"
            assert not cancelled, "and yet it goes on"
            assert stage.server.in_flight_bytes > 0, "its bytes are still held"
            assert stage.counts.delayed_now == 0
            pending.set_applied()
            assert stage.server.in_flight_bytes == 0
            pending.set_result(answer(0))

    network.run(story())


def test_all_that_a_client_sent_before_it_left_is_handled_behind_what_had_no_effect_yet(
    network: Network,
) -> None:
    async def story() -> None:
        async with network.stage() as stage:
            held = stage.reply = Held()
            client, other = await stage.connect(), await stage.connect()
            await client.send(b"".join(asked(f"unapplied {number}", number) for number in range(3)))
            await stage.counts.until(lambda: len(stage.begun) == 1)
            client.close()
            for connection in list(stage.server._connections):
                connection.look(stage.contexts[0].received_ms)
            stage.reply = lambda request, context: answer(0)
            assert await other.ask("other", 1) == (1, 0)
            assert stage.counts.closed == []
            stage.reply = held
            for number in range(3):
                await stage.counts.until(lambda: f"unapplied {number}" in stage.begun)  # noqa: B023
                held.pending[f"unapplied {number}"].set_result(None)
            await stage.counts.until_closed("client gone")

    network.run(story())


def test_what_is_past_its_deadline_has_no_effect_any_more_and_others_begin(network: Network) -> None:
    async def story() -> None:
        async with network.stage(ServerLimits(request_ms_max=30, tick_ms=5)) as stage:
            held = stage.reply = Held()
            client = await stage.connect()
            await client.send(asked("unapplied", 1) + asked("behind", 2))
            assert await client.answer() == (1, ErrorCode.REQUEST_TIMED_OUT)
            assert held.pending["unapplied"].is_cancelled
            await stage.counts.until(lambda: "behind" in stage.begun)
            held.pending["unapplied"].set_result(answer(0))
            held.pending["behind"].set_result(answer(0))
            assert await client.answer() == (2, 0)

    network.run(story())


def test_a_connection_that_is_held_back_notices_that_its_client_is_gone(network: Network) -> None:
    async def story() -> None:
        async with network.stage(order=Order.STRICT) as stage:
            stage.reply = Later()
            client = await stage.connect()
            await client.send(asked("first", 1) + asked("second", 2))
            await stage.counts.until(lambda: stage.begun == ["first"])
            client.close()
            await stage.counts.until(lambda: len(stage.counts.closed) == 1)
            assert stage.begun == ["first"]

    network.run(story())


def test_only_these_apis_let_others_begin_behind_them() -> None:
    orders = {each.api: each.order for each in HANDLERS.load() if each.order is not Order.STRICT}
    assert orders == {
        ApiKey.PRODUCE: Order.PIPELINED,
        ApiKey.OFFSET_COMMIT: Order.PIPELINED,
        ApiKey.TXN_OFFSET_COMMIT: Order.PIPELINED,
        ApiKey.FETCH: Order.OVERTAKEN,
    }
