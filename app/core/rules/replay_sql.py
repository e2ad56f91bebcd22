"""One row replayed from its log, in Spark SQL: the meaning of ``app.core.rules.replayed_row``.

The records are walked once, with what can be accumulated in a few values; lists of values (logs, bitmaps) are taken
from what the last removal left, when it is known. Each step is a column of its own, because Spark's analyzer gives up
on lambdas that are nested deeply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from app.core.rules.accumulators import Union
from app.core.rules.log_records import member_of
from app.core.rules.order import Order
from app.core.rules.register import Register
from app.core.rules.replayed_row import TOMBSTONE
from app.core.rules.row import LIVE_COLUMN, REMOVED_AT
from app.core.rules.rule import Rule, Sql
from app.core.rules.spark_sql import any_not_null, bound_sql, literal, quote, ref, sorted_sql
from app.core.rules.stepwise import Stepwise
from app.core.table.records import ARRIVAL_COLUMN, KIND_COLUMN

if TYPE_CHECKING:  # the rule is written in terms of this
    from app.core.rules.replay import Replay

_BEGUN, _RECORDS, _WALKED, _HELD, _FINISHED = "_kf_begun", "_kf_records", "_kf_walked", "_kf_held", "_kf_finished"
_PLACE, _SINCE = "_kf_place", "_kf_since"


class ReplaySql:
    """The texts of one rule over the relation ``state`` of state rows. ``a`` is what is accumulated, ``n`` a lifted
    record. ``log``: SQL of what is replayed, if not all of the log; ``label`` tells its steps from others.
    """

    def __init__(self, rule: Replay, state: str, log: str | None = None, label: str = "") -> None:
        self.rule = rule
        self.state = state
        self._label = label
        self._log = log or ref(state, rule.log)
        self._base = ref(state, rule.base) if rule.settles else None

    @cached_property
    def _lists(self) -> Mapping[str, Rule]:
        """State columns that are lists, one element or none for each record: they are gathered after the walk."""
        logs = {rule.log: rule for rule in self.rule.rules if isinstance(rule, Stepwise)}
        return {**logs, **self._gathered}

    @cached_property
    def _gathered(self) -> Mapping[str, Union]:
        """Columns whose values Spark joins outside of lambdas only."""
        return {rule.column.name: rule for rule in self.rule.rules if isinstance(rule, Union) and rule.runs_python}

    @cached_property
    def _types(self) -> Mapping[str, str]:
        """Names and Spark types of what the rules hold."""
        columns = {column.name: column.type.spark for rule in self.rule.rules for column in rule.columns}
        columns |= dict.fromkeys(self._gathered, "ARRAY<BINARY>")
        return columns | {hidden.name: hidden.type.spark for rule in self.rule.rules for hidden in rule.hidden}

    @cached_property
    def steps(self) -> tuple[Sql, ...]:
        """Columns to be added one after the other: the last ones hold what all records come to."""
        begun = ({_BEGUN: self._stored()},) if self._base else ()
        steps = (
            *begun,
            {_RECORDS: self._records()},
            {_WALKED: self._walk()},
            {_HELD: self._with_lists()},
            {_FINISHED: self._finished()},
        )
        return tuple({f"{name}{self._label}": sql for name, sql in step.items()} for step in steps)

    def _step(self, name: str) -> str:
        return f"{self.state}.{name}{self._label}"

    @property
    def finished(self) -> Sql:
        """The state columns, but log and base."""
        finished = self._step(_FINISHED)
        names = [column.name for column in self.rule.columns]
        names += [LIVE_COLUMN, *(bounds.carry for bounds in self.rule.bounds)]
        outputs = {name: f"{finished}.{quote(name)}" for name in names}
        for rule in self.rule.rules:
            settled = rule.settle_sql(finished, False).outputs
            outputs |= {name: sql for name, sql in settled.items() if name in outputs}
        return outputs | {name: rule.folded.format(vs=outputs[name]) for name, rule in self._gathered.items()}

    @property
    def base(self) -> str:
        """What stands for the log."""
        held = self._step(_HELD)
        values = {name: f"{held}.{quote(name)}" for name in self._types}
        values |= {name: value for name, value in self.finished.items() if name in values}
        members = [f"{literal(self._base_member(name))}, {value}" for name, value in values.items()]
        members += [f"{literal(name)}, {held}.{name}" for name in self._own_names]
        return f"named_struct({', '.join(members)})"

    @property
    def _own_names(self) -> list[str]:
        return [LIVE_COLUMN, REMOVED_AT, *(f"{TOMBSTONE}{i}" for i in range(len(self.rule.listed)))]

    def _base_member(self, name: str) -> str:
        return self.rule.members.get(name, name)

    @property
    def removal(self) -> str:
        """A log of the entry that removes the row as the -D did that last removed it; empty if none did."""
        held = self._step(_HELD)
        found = f"get(filter({self._log}, e -> e.{ARRIVAL_COLUMN} = {held}.{REMOVED_AT}), 0)"
        values = {member: f"f.{member}" for member in self.rule.members.values()}
        for i, register in enumerate(self.rule.listed):
            group = enumerate(register.part.group)
            values |= {self.rule.members[name]: f"{held}.{TOMBSTONE}{i}.g{place}" for place, name in group}
        members = ", ".join(f"{literal(name)}, {value}" for name, value in values.items())
        told = "".join(f"'{word}', 0L, " for word in self.rule.words)  # ``Replay.removed`` says what it names
        entry = f"named_struct('{ARRIVAL_COLUMN}', {held}.{REMOVED_AT}, '{KIND_COLUMN}', 3Y, {told}{members})"
        typed = f"CAST(array({bound_sql(found, 'f', entry)}) AS {self.rule.log_type})"
        return f"IF({held}.{REMOVED_AT} IS NULL, CAST(array() AS {self.rule.log_type}), {typed})"

    def keys(self, entry: str) -> list[str]:
        """What sorts log entries in merge order."""
        reference = {field.column.name: f"{entry}.{member_of(field.column)}" for field in self.rule.order.fields}
        return [*self.rule.order.sql(reference, f"({entry}.{KIND_COLUMN} IN (0, 2))"), f"{entry}.{ARRIVAL_COLUMN}"]

    def _records(self) -> str:
        ordered = sorted_sql(self._log, self.keys("{e}"), self.rule.entry_type)
        # Read by name and lifted in two walks: in one, each record would be named anew for each of its columns.
        return f"transform(transform({ordered}, e -> {self._record('e')}), r -> {self._lifted()})"

    def _walk(self) -> str:
        step = f"CASE WHEN {self._removes()} THEN {self._removed()} ELSE {self._folded()} END"
        start, walked = self._start(), self._walked_type
        return f"aggregate({self._step(_RECORDS)}, {start}, (a, n) -> CAST({step} AS {walked}))"

    def _record(self, entry: str) -> str:
        """A struct of the columns by name."""
        own = [f"{literal(name)}, {entry}.{name}" for name in (ARRIVAL_COLUMN, KIND_COLUMN, *self.rule.words)]
        members = [f"{literal(name)}, {entry}.{member}" for name, member in self.rule.members.items()]
        return f"named_struct({', '.join([*own, *members])})"

    def _lifted(self) -> str:
        values = {name: sql for rule in self.rule.rules for name, sql in rule.lift_sql().items()}
        values |= {name: f"filter(array({values[name]}), v -> v IS NOT NULL)" for name in self._gathered}
        return self._struct(values, {name: f"r.{name}" for name in (KIND_COLUMN, ARRIVAL_COLUMN)}, self._types)

    def _struct(self, values: Sql, own: Sql, types: Mapping[str, str]) -> str:
        """A struct of ``types``, null where ``values`` has none, and then ``own``."""
        typed = [f"{literal(n)}, CAST({values.get(n, 'NULL')} AS {spark_type})" for n, spark_type in types.items()]
        return f"named_struct({', '.join([*typed, *(f'{literal(name)}, {value}' for name, value in own.items())])})"

    @cached_property
    def _walked(self) -> Mapping[str, str]:
        return {name: spark_type for name, spark_type in self._types.items() if name not in self._lists}

    @cached_property
    def _walked_type(self) -> str:
        members = [f"{quote(name)}: {spark_type}" for name, spark_type in self._walked.items()]
        members += [f"{LIVE_COLUMN}: BOOLEAN", f"{REMOVED_AT}: BIGINT"]
        members += [f"{TOMBSTONE}{i}: {self._tombstone_type(one)}" for i, one in enumerate(self.rule.listed)]
        return f"STRUCT<{', '.join([*members, f'{_PLACE}: INT', f'{_SINCE}: INT'])}>"

    @staticmethod
    def _tombstone_type(register: Register) -> str:
        types = {column.name: column.type.spark for column in register.columns}
        return f"STRUCT<{', '.join(f'g{i}: {types[name]}' for i, name in enumerate(register.part.group))}>"

    def _own(self, live: str, removed_at: str, tombstones: Sequence[str], since: str) -> Sql:
        named = {f"{TOMBSTONE}{i}": tombstone for i, tombstone in enumerate(tombstones)}
        place = "0" if since == "0" else f"a.{_PLACE} + 1"
        return {LIVE_COLUMN: live, REMOVED_AT: removed_at, **named, _PLACE: place, _SINCE: since}

    def _stored(self) -> str:
        """What the rules held of the base, by name."""
        names = {name: spark_type for name, spark_type in self._types.items() if name not in self._gathered}
        return self._struct({name: f"{self._base}.{quote(self._base_member(name))}" for name in names}, {}, names)

    def _start(self) -> str:
        """What is held before the first record."""
        own = self._own("FALSE", "NULL", ["NULL" for _ in self.rule.listed], "0")
        values: Sql = {}
        if self._base:
            begun = self._step(_BEGUN)
            values = {name: ref(begun, name) for name in self._walked}
            own |= {name: f"{self._base}.{name}" for name in self._own_names}
            own[LIVE_COLUMN] = f"coalesce({own[LIVE_COLUMN]}, FALSE)"
        return f"CAST({self._struct(values, own, self._walked)} AS {self._walked_type})"

    def _removes(self) -> str:
        accepted = " OR ".join(register.newer_wins_sql("a", "n") for register in self.rule.listed)
        deleted = f"n.{KIND_COLUMN} = 3"
        return f"{deleted} AND ({accepted})" if self.rule.listed else deleted

    def _removed(self) -> str:
        """Nothing is left but, of the groups that accepted the -D, its sequence."""
        values: Sql = {}
        tombstones = []
        for register in self.rule.listed:
            accepted = register.newer_wins_sql("a", "n")
            values |= {name: f"IF({accepted}, {ref('n', name)}, NULL)" for name in register.names}
            sequence = ", ".join(f"'g{place}', {ref('n', name)}" for place, name in enumerate(register.part.group))
            tombstones.append(f"IF({accepted}, named_struct({sequence}), NULL)")
        return self._struct(
            values, self._own("FALSE", f"n.{ARRIVAL_COLUMN}", tombstones, f"a.{_PLACE} + 1"), self._walked
        )

    def _folded(self) -> str:
        stale = self._stale("a")
        values: Sql = {}
        for rule in self.rule.rules:
            folded = rule.combine_sql("a", "n") if self._walked.keys() & set(rule.names) else {}
            closed = stale.get(rule.part.group)
            values |= folded if closed is None else {n: f"IF({closed}, {ref('a', n)}, {v})" for n, v in folded.items()}
        live = f"(a.{LIVE_COLUMN} OR (n.{KIND_COLUMN} IN (0, 2) AND NOT ({' OR '.join(stale.values()) or 'FALSE'})))"
        tombstones = [f"a.{TOMBSTONE}{i}" for i in range(len(self.rule.listed))]
        return self._struct(values, self._own(live, f"a.{REMOVED_AT}", tombstones, f"a.{_SINCE}"), self._walked)

    def _stale(self, held: str) -> Mapping[tuple[str, ...], str]:
        """Per listed group whether record ``n`` is older than the removal that it accepted."""
        return {register.part.group: self._older(i, register, held) for i, register in enumerate(self.rule.listed)}

    @staticmethod
    def _older(number: int, register: Register, held: str) -> str:
        group = Order(register.order.fields[: len(register.part.group)])
        tombstone = f"{held}.{TOMBSTONE}{number}"
        mine = group.sql({name: ref("n", name) for name in register.part.group}, "TRUE")
        theirs = group.sql({name: f"{tombstone}.g{i}" for i, name in enumerate(register.part.group)}, "TRUE")
        present = any_not_null("n", register.part.group)
        older = f"struct({', '.join(mine)}) < struct({', '.join(theirs)})"
        return f"({tombstone} IS NOT NULL AND {present} AND {older})"

    def _with_lists(self) -> str:
        """What was walked, with the lists of what the last removal left."""
        walked = self._step(_WALKED)
        values = {name: ref(walked, name) for name in self._walked}
        values |= {name: self._list(name, rule) for name, rule in self._lists.items()}
        return self._struct(values, {name: f"{walked}.{name}" for name in self._own_names}, self._types)

    def _list(self, name: str, rule: Rule) -> str:
        walked = self._step(_WALKED)
        closed = self._stale(walked).get(rule.part.group)
        left = f"i >= {walked}.{_SINCE} AND {ref('n', name)} IS NOT NULL" + (f" AND NOT {closed}" if closed else "")
        added = f"flatten(transform(filter({self._step(_RECORDS)}, (n, i) -> {left}), n -> {ref('n', name)}))"
        if self._base:
            stored = f"{self._base}.{quote(self._base_member(name))}"
            stored = f"IF({stored} IS NULL, NULL, array({stored}))" if name in self._gathered else stored
            kept = f"IF({walked}.{_SINCE} > 0, NULL, {stored})"
            added = f"concat(coalesce(CAST({kept} AS {self._types[name]}), array()), {added})"
        # A log that holds nothing is none: its value would be taken for settled.
        return added if name in self._gathered else bound_sql(added, "es", "IF(size(es) = 0, NULL, es)")

    def _finished(self) -> str:
        """What is held, and the totals of the rules, each a member of its own before anything uses it."""
        held = self._step(_HELD)
        steps = [step for rule in self.rule.rules for step in rule.settle_sql(held, False).steps]
        members = {name: ref(held, name) for name in (*self._types, LIVE_COLUMN)}
        members |= {name: sql for step in steps for name, sql in step.items()}
        return f"named_struct({', '.join(f'{literal(name)}, {sql}' for name, sql in members.items())})"
