"""One client's connection: its channel, when it is read from and written to, and when it ends.

A channel only says that it is readable or writable (`channel`): asyncio's transports would copy every payload
and know nothing of `sendfile`.

    readable -> Incoming -> frames -> _backlog -> RequestQueue -> Outgoing -> channel

Reading stops, and with it the handling of what is already read (`_backlog`), as long as one of these holds:

    the next one is held back     by a request before it that is undecided (`request_queue`)
    too much is unanswered        bytes or number of requests of this connection
    too much is not taken         bytes of responses that the client does not read; or that all clients
                                  do not, and this one is one of them
    the broker is full            see `admission`
    it is muted                   its client has used more than its quota, for as long as that takes
    the server drains

Meanwhile the end of the stream goes unseen; it is asked for once in a while, but not while a request is yet
to have its effect: that takes milliseconds, and its client may have sent more and left without a response.

Requests are begun in turns of the loop (`turns`): who asks one thing at a time does not wait for all that the
others have sent.

Time is looked after by the server's wheel (`look`).  It ends a connection that

    sent nothing of a request within `setup_ms_max` of its opening
    sends a frame at less than BYTES_PER_SECOND_MIN after a time of grace; or a large one so slowly that all
    of it would take longer than FRAME_MS_MAX: it holds room that others wait for
    takes its responses at less than BYTES_PER_SECOND_MIN in any span of `stalled_ms_max`: what it took
    before, and what the kernel took for it, does not count
    asked nothing for `idle_ms_max` while nothing was on its way

A connection ends by `close`, once: what is delayed is cancelled (`pending`), regions are closed, room is
given back.  Nothing points back at it then, so that its memory goes at once and not when the collector
happens to look.
Whatever a client sends, only its own connection ends.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from typing import Final

from distributedlog.broker.net.admission import (
    BYTES_PER_SECOND_MIN,
    NEVER_MS,
    SMALL_FRAME_BYTES_MAX,
)
from distributedlog.broker.net.channel import Channel
from distributedlog.broker.net.dispatch import CloseConnectionError
from distributedlog.broker.net.incoming import Incoming
from distributedlog.broker.net.outgoing import Outgoing, Sent
from distributedlog.broker.net.processor import Processor
from distributedlog.broker.net.request_queue import RequestQueue
from distributedlog.broker.net.turns import name_turns
from distributedlog.model.errors import DlogError, MalformedMessageError, UnsupportedVersionError

logger = logging.getLogger(__name__)

RECEIPTS_PER_TURN: Final = 4
FRAME_MS_MAX: Final = 60_000
"""Longer than any client waits for a response."""
HANG_UP_CHECK_MS: Final = 1000
"""How often a connection that is not read from is asked whether its client is still there."""

# Why a connection ended: words for metrics and the log.
GONE: Final = "client gone"
BAD_REQUEST: Final = "bad request"
NO_REQUEST: Final = "no request"
SLOW_REQUEST: Final = "slow request"
SLOW_READER: Final = "slow reader"
IDLE: Final = "idle"
REFUSED: Final = "refused"
FAILED: Final = "failed"
DRAINED: Final = "drained"
_UNREMARKABLE: Final = frozenset({GONE, IDLE, DRAINED})


class Connection:
    __slots__ = (
        "_attends_soon",
        "_backlog",
        "_blocked_since_ms",
        "_channel",
        "_draining",
        "_frame_since_ms",
        "_incoming",
        "_is_deferred",
        "_is_reading",
        "_is_sending",
        "_is_writing",
        "_last_request_ms",
        "_muted",
        "_opened_ms",
        "_outgoing",
        "_processor",
        "_requests",
        "_sent_bytes_then",
        "_stopped_ms",
        "_untaken_bytes",
        "_waits_for_room",
        "_waits_to_go_on",
        "connection_id",
        "due_ms",
        "is_closed",
        "listener",
        "peer_host",
    )  # fmt: skip

    def __init__(
        self,
        processor: Processor,
        channel: Channel,
        *,
        peer_host: str,
        listener: str,
        connection_id: int,
    ) -> None:
        self._processor = processor
        self._channel = channel
        self.listener = listener
        self.peer_host = peer_host
        self.connection_id = connection_id
        self.is_closed = False
        self._incoming = Incoming(processor.scratch, processor.limits.frame_bytes_max)
        self._backlog: deque[bytearray] = deque()
        self._outgoing = Outgoing(channel, processor.warmer, self._attend_soon)
        self._requests = RequestQueue(
            processor,
            self._outgoing,
            self._attend_soon,
            listener=listener,
            host=peer_host,
            connection_id=connection_id,
        )
        self._attends_soon = False
        self._draining = False
        self._is_deferred = False
        self._waits_for_room = False
        """It waits for memory for the large frame of which the begin is here."""
        self._waits_to_go_on = False
        """Its next request waits until the broker is less full."""
        self._muted: asyncio.TimerHandle | None = None
        """The timer that ends the throttling; nothing is begun before."""
        self._is_reading = True
        self._is_writing = False
        self._is_sending = False
        """It is counted in the processor as one that has more to send at once."""
        self._opened_ms = processor.clock.monotonic_ms()
        self._last_request_ms: int | None = None
        self._frame_since_ms = 0
        """When the frame under way was begun, leaving out times in which nothing was read."""
        self._stopped_ms = 0
        self._blocked_since_ms: int | None = None
        self._sent_bytes_then = 0
        self._untaken_bytes = 0
        """What of our responses is counted in `admission`."""
        self.due_ms = NEVER_MS
        processor.wheel.add(
            self, self._opened_ms + min(processor.limits.setup_ms_max, processor.limits.idle_ms_max)
        )
        channel.notify_readable(self._on_readable)

    # --- reading -------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        now_ms = self._processor.clock.monotonic_ms()
        for _ in range(RECEIPTS_PER_TURN):
            if not self._receive(now_ms) or not self._begin_requests(now_ms):
                return
            # What may be there already is begun before anything is sent: fewer, larger writes.
            if not self._incoming.may_receive_more or self._backlog or not self._admit_request():
                break
        self._settle(now_ms)

    def _receive(self, now_ms: int) -> bool:
        """False if the connection has ended."""
        incoming = self._incoming
        was_under_way = incoming.is_under_way
        try:
            frames = incoming.receive(self._channel)
        except OSError as error:
            self.close(GONE, str(error))
            return False
        if frames is None:
            self.close(GONE, "it hung up")
            return False
        if incoming.is_under_way and (frames or not was_under_way):
            self._frame_since_ms = now_ms
            self._processor.wheel.hurry(self, now_ms + self._processor.limits.setup_ms_max)
        if frames:
            self._last_request_ms = now_ms
            self._backlog.extend(frames)
        return True

    def _on_writable(self) -> None:
        self._work(self._processor.clock.monotonic_ms())

    def attend(self) -> None:
        """Does what has become possible: responses came, room was made, pages are in memory."""
        self._attends_soon = False
        if not self.is_closed:
            self._work(self._processor.clock.monotonic_ms())

    def take_turn(self) -> None:
        """Goes on after it was deferred."""
        self._is_deferred = False
        if not self.is_closed:
            self._work(self._processor.clock.monotonic_ms())

    @property
    def turn_name(self) -> str:
        broker = self._requests.session.broker
        return self.peer_host if broker is None else name_turns(self.peer_host, broker.broker_id)

    def _attend_soon(self) -> None:
        if not self._attends_soon and not self.is_closed:
            self._attends_soon = True
            self._processor.attend_soon(self)

    def _work(self, now_ms: int) -> None:
        if self._begin_requests(now_ms):
            self._settle(now_ms)

    def _begin_requests(self, now_ms: int) -> bool:
        """Begins what is here and may be begun.  False if the connection has ended."""
        requests, backlog = self._requests, self._backlog
        try:
            if requests:
                requests.collect()
                if requests.muted_until_ms:
                    self._mute(now_ms)
            moment_ms = now_ms
            while (
                backlog
                and requests.can_begin(backlog[0])
                and self._admit_request()
                and self._processor.turns.try_begin(self.turn_name, moment_ms)
            ):
                requests.handle(backlog.popleft(), now_ms)
                if requests.muted_until_ms:
                    self._mute(now_ms)
                if backlog:
                    moment_ms = self._processor.clock.monotonic_ms()
            # What is left, `_regulate` sees to.
            if self._incoming.failure is not None and not backlog:
                raise self._incoming.failure
        except (MalformedMessageError, UnsupportedVersionError) as error:
            self._end(BAD_REQUEST, str(error), now_ms)
        except CloseConnectionError as error:
            self._end(REFUSED, str(error), now_ms)
        except Exception as error:
            logger.exception("a connection of %s failed", self.peer_host)
            self._end(FAILED, repr(error), now_ms)
        return not self.is_closed

    def _settle(self, now_ms: int) -> None:
        self._flush(now_ms)
        if not self.is_closed:
            if self._outgoing.queued_bytes != self._untaken_bytes:
                self._count_untaken(self._outgoing.queued_bytes)
            self._regulate(now_ms)

    def _count_untaken(self, untaken_bytes: int) -> None:
        self._processor.admission.untaken_bytes += untaken_bytes - self._untaken_bytes
        self._untaken_bytes = untaken_bytes

    def _end(self, reason: str, text: str, now_ms: int) -> None:
        """Closes it, after what was answered before."""
        self._flush(now_ms)
        self.close(reason, text)

    # --- stopping and going on -----------------------------------------------------------------

    def _admit_request(self) -> bool:
        """Admits one more request, or else waits in line until the broker is less full; False then."""
        queued_bytes = self._outgoing.queued_bytes
        if (
            self._waits_for_room
            or self._muted is not None
            or self._draining
            or queued_bytes > self._processor.limits.response_bytes_per_connection_max
            or (queued_bytes and self._processor.admission.is_backed_up(queued_bytes - self._untaken_bytes))
        ):
            return False
        if not self._requests:
            if self._waits_to_go_on:
                # The request in front of it is answered: a connection's first need not wait.
                self._waits_to_go_on = False
                self._processor.admission.forget(self)
            return True
        if self._waits_to_go_on or self._requests.is_full:
            return False
        if self._processor.admission.is_full:
            self._waits_to_go_on = True
            self._processor.admission.wait(self)
            return False
        return True

    def _regulate(self, now_ms: int) -> None:
        """Reads if and only if more may be begun and nothing is left to begin."""
        if self._draining:
            if not self._requests and not self._outgoing.queued_bytes:
                self.close(DRAINED, "")
                return
        elif self._requests.soonest_deadline_ms < self.due_ms:
            self._processor.wheel.hurry(self, self._requests.soonest_deadline_ms)
        is_held_back = self._backlog and not self._requests.can_begin(self._backlog[0])
        should_read = not is_held_back and self._admit_request()
        if should_read and self._backlog:
            # Its turn was over, or sending made room for more.
            should_read = False
            if not self._is_deferred:
                self._is_deferred = True
                self._processor.turns.defer(self)
        elif should_read and self._incoming.is_waiting_for_room:
            should_read = self._ask_for_room()
        if should_read is not self._is_reading:
            self._set_reading(should_read, now_ms)

    def _mute(self, now_ms: int) -> None:
        """Begins nothing more for as long as the quotas say; a longer wait that began before goes on."""
        until_ms, self._requests.muted_until_ms = self._requests.muted_until_ms, 0
        at_s = self._processor.loop.time() + max(0, until_ms - now_ms) / 1000
        if self._muted is not None:
            if self._muted.when() >= at_s:
                return
            self._muted.cancel()
        self._muted = self._processor.loop.call_at(at_s, self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        if self._last_request_ms is not None:
            # It was silent because it had to be.
            self._last_request_ms = self._processor.clock.monotonic_ms()
        self._attend_soon()

    def _ask_for_room(self) -> bool:
        """Reserves memory for a large frame, of which only the begin is here.  Its turn comes after all
        before it are begun: they may themselves hold the room it waits for."""
        if self._processor.admission.reserve(self._incoming.frame_size, self):
            self._incoming.make_room()
            return True
        self._waits_for_room = True
        return False

    def room_made(self, reserved_bytes: int) -> None:
        """Admission has room for the frame that waited for it, or for the next request."""
        self._waits_for_room = self._waits_to_go_on = False
        if reserved_bytes:
            self._incoming.make_room()
        self._attend_soon()

    def _set_reading(self, should_read: bool, now_ms: int) -> None:
        self._is_reading = should_read
        if should_read:
            self._frame_since_ms += now_ms - self._stopped_ms
            self._channel.notify_readable(self._on_readable)
        else:
            self._stopped_ms = now_ms
            self._channel.notify_readable(None)
            self._processor.wheel.hurry(self, now_ms + HANG_UP_CHECK_MS)

    # --- writing -------------------------------------------------------------------------------

    def _flush(self, now_ms: int) -> None:
        outgoing = self._outgoing
        if not outgoing.queued_bytes:
            return
        before = outgoing.sent_bytes
        try:
            sent = outgoing.send(self._processor.turn_bytes(self._is_sending))
        except OSError as error:
            self.close(GONE, str(error))
            return
        except DlogError as error:
            self.close(FAILED, str(error))
            return
        self._processor.metrics.bytes_out(outgoing.sent_bytes - before)
        should_write = sent is Sent.BLOCKED or sent is Sent.TURN_OVER
        if not should_write:
            self._blocked_since_ms = None
        elif self._blocked_since_ms is None:
            # Also if only its turn is over: the socket may be full by now, and then nothing else says so.
            self._blocked_since_ms = now_ms
            self._sent_bytes_then = outgoing.sent_bytes
            self._processor.wheel.hurry(self, now_ms + self._processor.limits.stalled_ms_max)
        self._count_sending(sent is Sent.TURN_OVER)
        if should_write is not self._is_writing:
            self._is_writing = should_write
            self._channel.notify_writable(self._on_writable if should_write else None)

    def _count_sending(self, is_sending: bool) -> None:
        self._processor.sending += is_sending - self._is_sending
        self._is_sending = is_sending

    # --- time ----------------------------------------------------------------------------------

    def look(self, now_ms: int) -> int | None:
        """Ends what has run out of time; says when to look again."""
        try:
            next_ms = self._requests.expire(now_ms)
        except CloseConnectionError as error:
            self._end(REFUSED, str(error), now_ms)
            return None
        if self._blocked_since_ms is not None:
            self._look_at_reader(now_ms, self._blocked_since_ms)
        for deadline_ms, reason, text in self._deadlines():
            if deadline_ms <= now_ms:
                self.close(reason, text)
                return None
            next_ms = min(next_ms, deadline_ms)
        if not self._is_reading:
            # Nothing shows the end of the stream then; yet room is held for who is gone.  But behind a
            # request that is yet to have its effect all that was sent is handled first.
            if not self._requests.has_unapplied and self._channel.has_hung_up():
                self.close(GONE, "it hung up")
                return None
            next_ms = min(next_ms, now_ms + HANG_UP_CHECK_MS)
        return min(next_ms, now_ms + self._processor.limits.idle_ms_max)

    def _look_at_reader(self, now_ms: int, since_ms: int) -> None:
        """Gives it another span if it was quick enough in the one that is over."""
        stalled_ms_max = self._processor.limits.stalled_ms_max
        taken = self._outgoing.sent_bytes - self._sent_bytes_then
        if now_ms - since_ms >= stalled_ms_max <= _allowed_ms(taken):
            self._blocked_since_ms = now_ms
            self._sent_bytes_then = self._outgoing.sent_bytes

    def _deadlines(self) -> Iterator[tuple[int, str, str]]:
        """What must have changed by when, else why it ends."""
        limits, incoming = self._processor.limits, self._incoming
        if self._blocked_since_ms is not None:
            yield (
                self._blocked_since_ms + limits.stalled_ms_max,
                SLOW_READER,
                f"it does not take its responses: {self._outgoing.queued_bytes} bytes are queued",
            )
        if not self._is_reading:
            return
        if incoming.is_under_way:
            yield (
                self._frame_since_ms + limits.setup_ms_max + _frame_ms(incoming.filled, incoming.frame_size),
                SLOW_REQUEST,
                f"{incoming.filled} bytes of a frame of {incoming.frame_size} came in time",
            )
        elif self._last_request_ms is None:
            yield self._opened_ms + limits.setup_ms_max, NO_REQUEST, "no request came in time"
        elif not self._requests and not self._outgoing.queued_bytes:
            yield self._last_request_ms + limits.idle_ms_max, IDLE, ""

    # --- the end -------------------------------------------------------------------------------

    def drain(self) -> None:
        """Begins nothing more, and ends when all that was begun is answered."""
        self._draining = True
        self._attend_soon()

    def close(self, reason: str, text: str) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        processor = self._processor
        self._channel.close()
        processor.wheel.remove(self)
        processor.admission.forget(self)
        if self._muted is not None:
            self._muted.cancel()
        self._count_untaken(0)
        self._count_sending(False)
        self._requests.close()
        self._outgoing.close()
        held = self._incoming.reserved_bytes
        held += sum(len(frame) for frame in self._backlog if len(frame) > SMALL_FRAME_BYTES_MAX)
        self._incoming.close()
        self._backlog.clear()
        processor.admission.unreserve(self.peer_host, held)
        if reason not in _UNREMARKABLE:
            processor.limited_log.warn(self.peer_host, reason, text)
        processor.metrics.connection_closed(self.listener, reason)
        processor.on_closed(self)


def _allowed_ms(count: int) -> int:
    """How long so many bytes may take."""
    return count * 1000 // BYTES_PER_SECOND_MIN


def _frame_ms(filled: int, frame_size: int) -> int:
    """How long so many bytes of a frame may take."""
    if frame_size <= SMALL_FRAME_BYTES_MAX:
        return _allowed_ms(filled)
    return min(_allowed_ms(filled), filled * FRAME_MS_MAX // frame_size)
