"""Attempts and stored messages written by hand, for audits whose answer is known beforehand."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

START = 1_794_943_534_000
TOPIC = "orders"


class Ledger:
    """What producers recorded, and what an archived table holds."""

    def __init__(self) -> None:
        self.attempts: list[dict[str, Any]] = []
        self.stored: list[dict[str, Any]] = []
        self._offsets: dict[tuple[str, str, int], int] = {}

    def attempt(
        self,
        *ids: str,
        number: int = 1,
        broker: str = "broker-a",
        queue: int = 0,
        status: str | None = "SEND_OK",
        error: str | None = None,
        at: int = 0,
        took: float = 2.0,
        **others: Any,
    ) -> None:
        self.attempts.append(
            {
                "started_ms": START + at,
                "elapsed_ms": took,
                "producer_group": "order-service",
                "topic": TOPIC,
                "message_ids": list(ids),
                "messages": len(ids),
                "body_bytes": 100,
                "is_oneway": False,
                "is_transaction": False,
                "is_delayed": False,
                "policy": "java5",
                "attempt": number,
                "is_late": False,
                "broker": broker,
                "queue_id": queue,
                "address": "127.0.0.1:10911",
                "status": None if error else status,
                "queue_offset": None,
                "error": error,
                "code": None,
                "remark": None,
                "reason": "in turn",
                "passed_over": {},
            }
            | others
        )

    def store(
        self, *ids: str, broker: str = "broker-a", queue: int = 0, topic: str = TOPIC
    ) -> None:
        for message_id in ids:
            offset = self._offsets.get((topic, broker, queue), 0)
            self._offsets[topic, broker, queue] = offset + 1
            self.stored.append(
                {
                    "topic": topic,
                    "brokerName": broker,
                    "queueId": queue,
                    "queueOffset": offset,
                    "messageId": message_id,
                }
            )

    def send(self, *ids: str, **others: Any) -> None:
        """Acknowledged, and stored once."""
        self.attempt(*ids, **others)
        place = {name: others[name] for name in ("broker", "queue", "topic") if name in others}
        self.store(*ids, **place)

    def write_attempts(self, file: Path) -> str:
        """As JsonLinesRecorder does; what is left out of a record, the record lacks."""
        file.write_text("".join(json.dumps(record) + "\n" for record in self.attempts))
        return str(file)

    def write_table(self, folder: Path, rows: Sequence[dict[str, Any]] | None = None) -> str:
        """As an archive does: a folder for each topic and date."""
        rows = self.stored if rows is None else rows
        for topic in {row["topic"] for row in rows}:
            part = folder / f"topic={topic}" / "date=2026-11-17"
            part.mkdir(parents=True, exist_ok=True)
            own = [
                {name: value for name, value in row.items() if name != "topic"}
                for row in rows
                if row["topic"] == topic
            ]
            table = pyarrow.Table.from_pylist(own, _SCHEMA)
            pyarrow.parquet.write_table(table, part / f"{len(list(part.iterdir()))}.parquet")
        return str(folder)


_SCHEMA = pyarrow.schema(
    {
        "brokerName": pyarrow.string(),
        "queueId": pyarrow.int32(),
        "queueOffset": pyarrow.int64(),
        "messageId": pyarrow.string(),
    }
)
