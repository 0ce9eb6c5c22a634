"""`rocketpipe demo`, but somebody takes a message out of the table, stores one at a second place,
and puts a row in twice.
"""

import json
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet

from rocketpipe.cli.program import main
from rocketpipe.demo.demo import Demo, RunResult
from rocketpipe.demo.run import Run, Sent


def tamper(table: Path) -> dict[str, str]:
    """Change the first file that readers see with enough in it; whom it is about."""
    files = [path for path in table.rglob("topic=*/date=*/*.parquet") if "/_" not in str(path)]
    file = max(files, key=lambda path: path.stat().st_size)
    rows = pyarrow.parquet.read_table(file, partitioning=None)
    removed, repeated, row = (rows.slice(place, 1) for place in range(3))
    column = rows.schema.get_field_index("queueOffset")
    elsewhere = pyarrow.array([1_000_000], rows.schema.field(column).type)
    copy = repeated.set_column(column, rows.schema.field(column), elsewhere)
    pyarrow.parquet.write_table(pyarrow.concat_tables([rows.slice(1), copy, row]), file)
    for checksum in file.parent.glob(f".{file.name}.crc"):
        checksum.unlink()  # Hadoop's, of the file as it was
    return {"lost": str(removed["messageId"][0]), "repeated": str(repeated["messageId"][0])}


class TamperedDemo(Demo):
    def conclude(self, run: Run, sent: Sent) -> RunResult:
        ids = tamper(run.pipeline.messages)
        (run.folder / "tampered.json").write_text(json.dumps(ids))
        return super().conclude(run, sent)


if __name__ == "__main__":
    import rocketpipe.demo.demo

    rocketpipe.demo.demo.Demo = TamperedDemo  # type: ignore[misc]
    sys.exit(main(sys.argv[1:]))
