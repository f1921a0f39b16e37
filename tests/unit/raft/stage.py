"""A small cluster on a stage: pure nodes whose messages, disks and time a script moves by hand.

Every command returns what happened as lines of text, in words a reader can follow.  An entry is written
index.term, as in the Raft paper's figures.
"""

import dataclasses

from distributedlog.model.errors import DlogError
from distributedlog.raft import (
    AddObserver,
    Entry,
    EntryKind,
    HardState,
    Membership,
    Message,
    Persist,
    Promote,
    RaftConfig,
    RaftNode,
    Recovered,
    Remove,
    Role,
    Snapshot,
)
from distributedlog.raft.messages import (
    AppendReply,
    AppendRequest,
    Heartbeat,
    HeartbeatReply,
    InstallReply,
    InstallRequest,
    VoteReply,
    VoteRequest,
)

CONFIG = RaftConfig(
    election_timeout_ms=1000,
    heartbeat_ms=200,
    entries_kept_behind_snapshot=0,
    snapshot_chunk_bytes=4,
    promote_lag_entries_max=1,
)

_NEVER_MS = 1 << 60


class Stored:
    """A disk that holds exactly what was synced."""

    def __init__(self) -> None:
        self.hard_state = HardState()
        self.snapshot: Snapshot | None = None
        self.entries: list[Entry] = []

    def write(self, persist: Persist) -> None:
        if persist.hard_state is not None:
            self.hard_state = persist.hard_state
        if persist.snapshot is not None:
            self.snapshot = persist.snapshot
            if persist.snapshot_installed:
                self.entries.clear()
        if persist.truncate_from is not None:
            self.entries = [entry for entry in self.entries if entry.index < persist.truncate_from]
        self.entries.extend(persist.entries)
        self.entries = [entry for entry in self.entries if entry.index >= persist.log_start_index]

    def recovered(self) -> Recovered:
        return Recovered(self.hard_state, self.snapshot, tuple(self.entries))


class Actor:
    def __init__(
        self, node_id: int, config: RaftConfig, bootstrap: Membership, stored: Stored, now_ms: int
    ) -> None:
        self.node = RaftNode(
            node_id, config, lambda low, high: low + 100, bootstrap, stored.recovered(), now_ms
        )
        self.stored = stored
        self.values = _values(stored.snapshot)
        self.held = False
        self.ahead_ms = 0
        self.writing: Persist | None = None
        self.seen = (Role.FOLLOWER, stored.hard_state.term)


def _values(snapshot: Snapshot | None) -> list[str]:
    return snapshot.data.decode().split() if snapshot is not None else []


class Stage:
    def __init__(self) -> None:
        self.now_ms = 0
        self.actors: dict[int, Actor] = {}
        self.messages: list[Message] = []
        self.cuts: set[tuple[int, int]] = set()
        self.bootstrap = Membership.of_voters(1)
        self.config = CONFIG
        self._lines: list[str] = []
        self._reads = 0

    def perform(self, command: str) -> list[str]:
        """Runs one command; what happened, line by line."""
        self._lines = []
        verb, *words = command.split()
        try:
            getattr(self, f"do_{verb}")(*words)
        except DlogError as error:
            self._say(f"refused: {error}")
        for node_id in list(self.actors):
            self._settle(node_id)
        return self._lines

    # --- commands: the cast --------------------------------------------------------------------

    def do_cluster(self, *node_ids: str) -> None:
        """cluster 1 2 3"""
        self.bootstrap = Membership.of_voters(*map(int, node_ids))
        for node_id in map(int, node_ids):
            self.actors[node_id] = Actor(node_id, self.config, self.bootstrap, Stored(), self.now_ms)

    def do_slim(self) -> None:
        """slim: appends carry one entry each"""
        self.config = dataclasses.replace(CONFIG, append_entries_max=1)

    def do_newcomer(self, node_id: str) -> None:
        """newcomer 4: a node that belongs to nobody yet"""
        self.actors[int(node_id)] = Actor(int(node_id), self.config, self.bootstrap, Stored(), self.now_ms)

    def do_restart(self, node_id: str) -> None:
        """restart 2: what was not synced is gone"""
        stored = self.actors[int(node_id)].stored
        self.messages = [message for message in self.messages if message.to != int(node_id)]
        self.actors[int(node_id)] = Actor(int(node_id), self.config, self.bootstrap, stored, self.now_ms)
        term, vote = stored.hard_state.term, stored.hard_state.vote or "nobody"
        self._say(f"{node_id} restarts in term {term}, voted for {vote}")

    def do_forget(self, node_id: str, _as: str, incarnation: str) -> None:
        """forget 3 as 7: the disk lost what it had synced; the node is incarnation 7 now"""
        stored = Stored()
        stored.hard_state = HardState(incarnation=int(incarnation))
        self.actors[int(node_id)] = Actor(int(node_id), self.config, self.bootstrap, stored, self.now_ms)

    # --- commands: time, messages, disks -------------------------------------------------------

    def do_timeout(self, node_id: str) -> None:
        """timeout 1: node 1's clock runs ahead, until it is tired of waiting"""
        actor = self.actors[int(node_id)]
        deadline_ms = actor.node.next_deadline_ms()
        if deadline_ms is None:
            self._say(f"{node_id} waits for nothing")
            return
        actor.ahead_ms = max(actor.ahead_ms, deadline_ms - self.now_ms)
        actor.node.tick(self.now_ms + actor.ahead_ms)

    def do_wait(self, duration: str, *only: str) -> None:
        """wait 600 [1 2]: time passes; what comes due for all, or for those named, is sent"""
        self._pass_time(duration, only, deliver=False)

    def do_run(self, duration: str, *only: str) -> None:
        """run 600 [1 2]: time passes, and messages arrive as they are sent"""
        self.do_deliver("quietly")
        self._pass_time(duration, only, deliver=True)

    def _pass_time(self, duration: str, only: tuple[str, ...], *, deliver: bool) -> None:
        node_ids = [int(word) for word in only] or list(self.actors)
        end_ms = self.now_ms + int(duration)
        while True:
            due_ms, node_id = min((self._due_ms(node_id), node_id) for node_id in node_ids)
            if due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self.actors[node_id].node.tick(self.now_ms + self.actors[node_id].ahead_ms)
            self._settle(node_id)
            if deliver:
                self.do_deliver("quietly")
        self.now_ms = end_ms

    def _due_ms(self, node_id: int) -> int:
        actor = self.actors[node_id]
        deadline_ms = actor.node.next_deadline_ms()
        return _NEVER_MS if deadline_ms is None else deadline_ms - actor.ahead_ms

    def do_deliver(self, *words: str) -> None:
        """deliver [1->2] [quietly] [once]: messages arrive, and the answers to them, until there are none"""
        quietly = "quietly" in words
        last = len(self.messages) if "once" in words else 10_000
        links = {tuple(map(int, word.split("->"))) for word in words if "->" in word}
        kept: list[Message] = []
        for _ in range(last):
            if not self.messages:
                break
            message = self.messages.pop(0)
            if links and (message.sender, message.to) not in links:
                kept.append(message)
                continue
            self._arrive(message, quietly)
        self.messages = kept + self.messages

    def _arrive(self, message: Message, quietly: bool) -> None:
        if (message.sender, message.to) in self.cuts or message.to not in self.actors:
            if not quietly:
                self._say(f"{message.sender} -x {message.to}  {spell(message)}")
            return
        if not quietly:
            self._say(f"{message.sender} -> {message.to}  {spell(message)}")
        self.actors[message.to].node.step(message, self.now_ms + self.actors[message.to].ahead_ms)
        self._settle(message.to)

    def do_lose(self, *words: str) -> None:
        """lose [1->2]: messages on the way are lost"""
        links = {tuple(map(int, word.split("->"))) for word in words}
        self.messages = [m for m in self.messages if links and (m.sender, m.to) not in links]

    def do_cut(self, *words: str) -> None:
        """cut 1 2 | 3: nothing passes between the sides"""
        bar = words.index("|")
        for a in map(int, words[:bar]):
            for b in map(int, words[bar + 1 :]):
                self.cuts |= {(a, b), (b, a)}

    def do_heal(self) -> None:
        """heal: the network is whole again"""
        self.cuts.clear()

    def do_hold(self, node_id: str) -> None:
        """hold 2: node 2's disk takes its time"""
        self.actors[int(node_id)].held = True

    def do_sync(self, node_id: str) -> None:
        """sync 2: node 2's disk is done, and fast again"""
        actor = self.actors[int(node_id)]
        actor.held = False
        self._say(f"{node_id} has synced")

    # --- commands: requests --------------------------------------------------------------------

    def do_propose(self, node_id: str, *values: str) -> None:
        """propose 1 x y"""
        self.actors[int(node_id)].node.propose([value.encode() for value in values])

    def do_read(self, node_id: str) -> None:
        """read 1"""
        self._reads += 1
        self.actors[int(node_id)].node.read_index(self._reads)

    def do_transfer(self, node_id: str, _to: str, target: str) -> None:
        """transfer 1 to 2"""
        actor = self.actors[int(node_id)]
        actor.node.transfer_leadership(int(target), self.now_ms + actor.ahead_ms)

    def do_add(self, node_id: str, *words: str) -> None:
        """add 1 4 [as 7]: node 1 is asked to add node 4 as an observer"""
        incarnation = int(words[2]) if len(words) > 1 else 0
        self.actors[int(node_id)].node.change_membership(AddObserver(int(words[0]), incarnation))

    def do_promote(self, node_id: str, member: str) -> None:
        """promote 1 4: node 1 is asked to make node 4 a voter"""
        self.actors[int(node_id)].node.change_membership(Promote(int(member)))

    def do_remove(self, node_id: str, member: str) -> None:
        """remove 1 3: node 1 is asked to remove node 3"""
        self.actors[int(node_id)].node.change_membership(Remove(int(member)))

    def do_snapshot(self, node_id: str) -> None:
        """snapshot 1: node 1 replaces what it has applied by a snapshot"""
        actor = self.actors[int(node_id)]
        index = actor.node.status.applied_index
        actor.node.take_snapshot(index, " ".join(actor.values).encode())
        self._say(f"{node_id} has a snapshot up to {index}")

    def do_show(self, *node_ids: str) -> None:
        """show [1 2]: roles, logs and what was applied"""
        for node_id in [int(word) for word in node_ids] or list(self.actors):
            self._say(self._show(node_id))

    def _show(self, node_id: int) -> str:
        actor = self.actors[node_id]
        core = actor.node.core
        log = " ".join(
            f"{e.index}.{e.term}" for e in core.log.range(core.log.base_index + 1, core.log.last_index)
        )
        start = f"..{core.log.base_index}.{core.log.base_term} " if core.log.base_index else ""
        what = "observer" if not actor.node.may_vote and core.role is Role.FOLLOWER else core.role.value
        applied = f"; applied {' '.join(actor.values)}" if actor.values else ""
        state = f"{what}, term {core.term}, committed {core.commit_index}"
        return f"{node_id}: {state}, log {start}{log or '-'}{applied}"

    def do_members(self, node_id: str) -> None:
        """members 1: whom node 1 believes to be members"""
        self._say(f"{node_id}: {self.actors[int(node_id)].node.status.membership}")

    # --- effects -------------------------------------------------------------------------------

    def _settle(self, node_id: int) -> None:
        """Performs what a node has ready, until it has nothing."""
        actor = self.actors[node_id]
        node = actor.node
        self._tell_role(node_id)
        while node.has_ready or (actor.writing is not None and not actor.held):
            ready = node.ready()
            self.messages.extend(ready.messages)
            if ready.restore is not None:
                actor.values = _values(ready.restore)
                self._say(f"{node_id} installs the snapshot up to {ready.restore.index}")
            for entry in ready.committed:
                self._apply(node_id, entry)
            for _ in ready.reads:
                self._say(f"{node_id} may answer the read: {' '.join(actor.values) or 'nothing'}")
            for _ in ready.reads_lost:
                self._say(f"{node_id} cannot answer the read")
            actor.writing = ready.persist or actor.writing
            if actor.writing is not None and not actor.held:
                actor.stored.write(actor.writing)
                writing, actor.writing = actor.writing, None
                node.advance(writing)
            self._tell_role(node_id)

    def _apply(self, node_id: int, entry: Entry) -> None:
        if entry.kind is EntryKind.COMMAND:
            self.actors[node_id].values.append(entry.payload.decode())
            self._say(f"{node_id} applies {entry.index}.{entry.term} {entry.payload.decode()}")

    def _tell_role(self, node_id: int) -> None:
        core = self.actors[node_id].node.core
        now = (core.role, core.term)
        if now != self.actors[node_id].seen:
            self.actors[node_id].seen = now
            self._say(f"{node_id} is {core.role.value} in term {core.term}")

    def _say(self, line: str) -> None:
        self._lines.append(line)


def spell(message: Message) -> str:
    """A message in words."""
    if isinstance(message, VoteRequest):
        what = "would you elect me" if message.pre_vote else "elect me"
        asked = ", by the leader's wish" if message.transfer else ""
        return (
            f"{what} in term {message.term}? my log ends at {message.last_index}.{message.last_term}{asked}"
        )
    if isinstance(message, VoteReply):
        return f"{'yes' if message.granted else 'no'}, term {message.term}"
    if isinstance(message, AppendRequest):
        entries = ", ".join(map(_spell_entry, message.entries)) or "nothing"
        after = f"after {message.prev_index}.{message.prev_term}" if message.prev_index else "from the start"
        return f"append {after}: {entries}; committed {message.commit_index}"
    if isinstance(message, AppendReply):
        if message.rejected:
            place = f"{message.hint_index}.{message.hint_term}"
            return f"refused after {message.match_index}; do we agree at {place}?"
        return f"stored up to {message.match_index}"
    if isinstance(message, Heartbeat):
        return (
            f"committed {message.commit_index}"
            if not message.round
            else f"heartbeat, committed {message.commit_index}"
        )
    if isinstance(message, HeartbeatReply):
        return f"here, term {message.term}"
    if isinstance(message, InstallRequest):
        end = message.offset + len(message.chunk)
        part = f"bytes {message.offset} to {end} of {message.total_bytes}"
        return f"snapshot up to {message.snapshot_index}: {part}"
    if isinstance(message, InstallReply):
        return f"go on at byte {message.next_offset}"
    return "campaign now"


def _spell_entry(entry: Entry) -> str:
    text = entry.payload.decode() if entry.kind is EntryKind.COMMAND else entry.kind.name.lower()
    return f"{entry.index}.{entry.term} {text}"
